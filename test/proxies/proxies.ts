import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { nginxConfig, startProgram } from "../support/caches.ts";
import { type Scope, freePort, temporaryFolder } from "../support/service.ts";

// Real proxies with the files in ops/guard, in which only addresses are replaced.

export interface ProxyOptions {
  /** Port of the guard, or the path of its socket. */
  readonly guard: number | string;
  readonly backendPort: number;
  /** More lines in the site's server block or `route`, before the program's location. */
  readonly site?: string;
  /** Names of the headers for the configuration's claims, such as `X-Jwksd-Claim-Email`. */
  readonly claims?: readonly string[];
  /** Whether the lines for pages from another origin are used, which are comments in the files. */
  readonly isCrossOrigin?: boolean;
  /** Lines next to the site. */
  readonly http?: string;
  /** Lines instead of the location or directive that passes requests to the program. */
  readonly program?: string;
  /** Time that the guard has for a check, in seconds. Default: as in the file. */
  readonly readTimeout?: number;
}

export interface Proxy {
  /** The value of `--for`. */
  readonly name: "nginx" | "caddy" | "traefik";
  /** Starts it with plain HTTP on a free port of 127.0.0.1. @returns the port */
  start(t: Scope, options: ProxyOptions): Promise<number>;
}

const folder = join(import.meta.dirname, "../../ops/guard");
const address = { host: "127.0.0.1" };

/** Replaces text that must occur exactly once. */
function replaced(text: string, from: string, to: string): string {
  const [before, after, ...more] = text.split(from);
  if (after === undefined || more.length > 0) throw new Error(`not exactly once: ${from}`);
  return `${before}${to}${after}`;
}

/** Returns a file of ops/guard with the lines for pages from another origin, which are comments, if they are used. */
export const crossOrigin = (text: string, isUsed = false): string =>
  isUsed
    ? text
        .replaceAll(/# (?=\t?(?:add_header|header|header_down)\b.* Access-Control-)/g, "")
        .replaceAll(
          /# (?=handle_errors \{$|\}$| *(?:jwksd-cors|headers|customResponseHeaders|Access-Control-.*):)/gm,
          "",
        )
    : text;

/** Returns the lines that pass on a claim, as docs/guard.md shows. */
function nginxClaim(name: string): string {
  const variable = name.toLowerCase().replaceAll("-", "_");
  return `auth_request_set $${variable} $upstream_http_${variable}; proxy_set_header ${name} $${variable};`;
}

const nginx = {
  name: "nginx",
  async start(
    t: Scope,
    { guard, backendPort, claims = [], isCrossOrigin, site = "", http = "", program, readTimeout = 15 }: ProxyOptions,
  ) {
    const [own, port] = [await temporaryFolder(t), await freePort()];
    const guardFile = crossOrigin(await readFile(join(folder, "jwksd-guard.conf"), "utf8"), isCrossOrigin);
    await writeFile(
      join(own, "guard.conf"),
      replaced(guardFile, "proxy_read_timeout 15s", `proxy_read_timeout ${readTimeout}s`),
    );
    let text = (await readFile(join(folder, "nginx.conf"), "utf8")).replaceAll(/^ +ssl_.*$/gm, "");
    text = text.replaceAll("listen 443 ssl", `listen 127.0.0.1:${port}`);
    // The table of requests has a host for each path.
    text = replaced(text, "server_name api.example.com", "server_name *.example.com");
    text = replaced(text, "127.0.0.1:9910;", typeof guard === "string" ? `unix:${guard};` : `127.0.0.1:${guard};`);
    text = replaced(text, "/etc/nginx/jwksd-guard.conf;", `guard.conf;\n${claims.map(nginxClaim).join("\n")}\n${site}`);
    text = replaced(text, "127.0.0.1:8000;", `127.0.0.1:${backendPort};`);
    if (program !== undefined) text = text.replace(/ {2}location \/ \{.*?\n {2}\}/s, () => program);
    await writeFile(join(own, "nginx.conf"), nginxConfig(`${http}\n${text}`));
    await startProgram(t, "nginx", ["-p", own, "-c", "nginx.conf", "-e", "stderr"], { ...address, port });
    return port;
  },
} as const;

const caddy = {
  name: "caddy",
  async start(
    t: Scope,
    { guard, backendPort, claims = [], isCrossOrigin, site = "", http = "", program, readTimeout = 15 }: ProxyOptions,
  ) {
    const [own, port] = [await temporaryFolder(t), await freePort()];
    let text = crossOrigin(await readFile(join(folder, "Caddyfile"), "utf8"), isCrossOrigin);
    text = replaced(text, "response_header_timeout 15s", `response_header_timeout ${readTimeout}s`);
    text = replaced(
      text,
      "forward_auth 127.0.0.1:9910",
      `forward_auth ${typeof guard === "string" ? `unix/${guard}` : `127.0.0.1:${guard}`}`,
    );
    text = replaced(text, "\napi.example.com {", `\nhttp://*.example.com:${port} {\n\tbind 127.0.0.1`);
    text = replaced(text, "X-Jwksd-Client X-Jwksd-Scope", ["X-Jwksd-Client X-Jwksd-Scope", ...claims].join(" "));
    text = replaced(text, "\t\timport jwksd-guard", `\t\timport jwksd-guard\n${site}`);
    text = replaced(text, "reverse_proxy 127.0.0.1:8000", program ?? `reverse_proxy 127.0.0.1:${backendPort}`);
    const file = join(own, "Caddyfile");
    await writeFile(
      file,
      `{\n\tadmin off\n\tauto_https off\n\tservers {\n\t\tprotocols h1 h2 h2c\n\t}\n}\n${text}\n${http}`,
    );
    const env = { ...process.env, HOME: own, XDG_DATA_HOME: own, XDG_CONFIG_HOME: own };
    await startProgram(t, "caddy", ["run", "--config", file, "--adapter", "caddyfile"], { ...address, port }, env);
    return port;
  },
} as const;

export const proxies: readonly (Proxy & { readonly name: "nginx" | "caddy" })[] = [nginx, caddy];
