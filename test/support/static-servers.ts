import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { startProgram } from "./caches.ts";
import { temporaryFolder } from "./service.ts";

/** A web server that shows a folder of `jwksd publish` by the configuration that is in it. */
export interface StaticServer {
  readonly name: "nginx" | "Caddy";
  readonly program: string;
  start(t: TestContext, options: { readonly folder: string; readonly port: number }): Promise<void>;
}

/**
 * Starts nginx with this inside of `http`. The temporary paths, and the user when started as root, are there because the built-in ones belong
 * to the system's own nginx.
 */
export async function startNginx(t: TestContext, http: string, port: number): Promise<void> {
  const own = await temporaryFolder(t);
  const config = `
daemon off;
master_process off;
${process.getuid?.() === 0 ? "user root;" : ""}
pid pid;
error_log stderr;
events {}
http {
  access_log off;
  types { text/html html; }
  ${["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map((name) => `${name}_temp_path ${name};`).join(" ")}
  ${http}
}`;
  await writeFile(join(own, "nginx.conf"), config);
  await startProgram(t, "nginx", ["-p", own, "-c", "nginx.conf", "-e", "stderr"], { host: "127.0.0.1", port });
}

const nginx: StaticServer = {
  name: "nginx",
  program: "nginx",
  start: (t, { folder, port }) =>
    startNginx(t, `server { listen 127.0.0.1:${port}; include "${folder}/.jwksd/nginx.conf"; }`, port),
};

const caddy: StaticServer = {
  name: "Caddy",
  program: "caddy",
  async start(t, { folder, port }) {
    const own = await temporaryFolder(t);
    const config = `{
	admin off
	auto_https off
}
http://127.0.0.1:${port} {
	import "${folder}/.jwksd/Caddyfile"
}
`;
    await writeFile(join(own, "Caddyfile"), config);
    const env = { ...process.env, HOME: own, XDG_DATA_HOME: own, XDG_CONFIG_HOME: own };
    const args = ["run", "--config", join(own, "Caddyfile"), "--adapter", "caddyfile"];
    await startProgram(t, "caddy", args, { host: "127.0.0.1", port }, env);
  },
};

export const staticServers: readonly StaticServer[] = [nginx, caddy];
