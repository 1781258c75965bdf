import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { nginxConfig, startProgram } from "./caches.ts";
import { temporaryFolder } from "./service.ts";

/** A web server that serves a `jwksd publish` folder as docs/publish.md describes. */
export interface StaticServer {
  readonly name: "nginx" | "Caddy";
  readonly program: string;
  start(t: TestContext, options: { readonly folder: string; readonly port: number }): Promise<void>;
}

/** Returns the code block in this language from docs/publish.md, for a different folder. */
async function block(language: string, folder: string): Promise<string> {
  const page = await readFile(join(import.meta.dirname, "../../docs/publish.md"), "utf8");
  const [, text] = new RegExp("^```" + language + "\\n(.*?)^```$", "ms").exec(page) ?? [];
  if (text === undefined) throw new Error(`docs/publish.md has no block of ${language}`);
  return text.replaceAll("/srv/www", folder);
}

/** Starts nginx with these lines inside `http`. */
export async function startNginx(t: TestContext, http: string, port: number): Promise<void> {
  const own = await temporaryFolder(t);
  await writeFile(join(own, "nginx.conf"), nginxConfig(`types { text/html html; }\n${http}`));
  await startProgram(t, "nginx", ["-p", own, "-c", "nginx.conf", "-e", "stderr"], { host: "127.0.0.1", port });
}

const nginx: StaticServer = {
  name: "nginx",
  program: "nginx",
  async start(t, { folder, port }) {
    const server = await block("nginx", folder);
    await startNginx(t, server.replace("listen 443 ssl", `listen 127.0.0.1:${port}`), port);
  },
};

const caddy: StaticServer = {
  name: "Caddy",
  program: "caddy",
  async start(t, { folder, port }) {
    const own = await temporaryFolder(t);
    const site = await block("caddy", folder);
    const config = `{
	admin off
	auto_https off
}
${site.replace("login.example.com", `http://127.0.0.1:${port}`)}`;
    await writeFile(join(own, "Caddyfile"), config);
    const env = { ...process.env, HOME: own, XDG_DATA_HOME: own, XDG_CONFIG_HOME: own };
    const args = ["run", "--config", join(own, "Caddyfile"), "--adapter", "caddyfile"];
    await startProgram(t, "caddy", args, { host: "127.0.0.1", port }, env);
  },
};

export const staticServers: readonly StaticServer[] = [nginx, caddy];
