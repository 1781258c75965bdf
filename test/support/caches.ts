import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFile, readdir, writeFile } from "node:fs/promises";
import { type IncomingHttpHeaders, type RequestOptions, request } from "node:http";
import { type NetConnectOpts, connect } from "node:net";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { part } from "./parts.ts";
import { type Scope, eventually, temporaryFolder } from "./service.ts";

/** A shared cache as operators run it. Responses have `X-Cache`; a request with `Cache-Control: no-cache` goes to the origin. */
export interface Cache {
  readonly name: "nginx" | "Varnish";
  readonly program: string;
  /** Whether hits have `Age`. */
  readonly sendsAge: boolean;
  start(t: Scope, options: CacheOptions): Promise<RunningCache>;
}

export interface CacheOptions {
  readonly originPort: number;
  /** Whether a lifetime short enough for a test overrides the origin's `Cache-Control`. */
  readonly shortLived: boolean;
}

export interface RunningCache {
  readonly socketPath: string;
  /** Returns how long the cache treats the document as fresh and then serves it stale; call it after a hit. */
  lifetime(path: string): Promise<{ readonly freshSeconds: number; readonly staleSeconds: number }>;
}

export const nginx: Cache = {
  name: "nginx",
  program: "nginx",
  sendsAge: false,
  async start(t, options) {
    const folder = await temporaryFolder(t);
    const socketPath = join(folder, "socket");
    await writeFile(join(folder, "nginx.conf"), nginxConfig(nginxCache(socketPath, options)));
    await startProgram(t, nginx.program, ["-p", folder, "-c", "nginx.conf", "-e", "stderr"], socketPath);
    return {
      socketPath,
      // Only nginx's cache file has this: ngx_http_file_cache_header_t, in fields of 8 bytes.
      async lifetime(path) {
        const names = await readdir(join(folder, "cache"));
        const files = await Promise.all(names.map((name) => readFile(join(folder, "cache", name))));
        const file = files.find((bytes) => bytes.includes(`${path}\n`)) as Buffer;
        const field = (index: number): number => Number(file.readBigInt64LE(index * 8));
        const [validUntil, staleSeconds, date] = [field(1), field(2), field(5)] as const;
        return { freshSeconds: validUntil - date, staleSeconds };
      },
    };
  },
};

/** Returns a configuration with these lines inside `http`. It sets temporary paths and the user, because the defaults belong to the system's nginx. */
export const nginxConfig = (http: string): string => `
daemon off;
${process.getuid?.() === 0 ? "user root;" : ""}
pid pid;
error_log stderr;
events {}
http {
  access_log off;
  ${["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map((name) => `${name}_temp_path ${name};`).join(" ")}
  ${http}
}`;

const nginxCache = (socketPath: string, { originPort, shortLived }: CacheOptions): string => `
  proxy_cache_path cache keys_zone=documents:1m;
  map $http_cache_control $asks_origin { ~no-cache 1; default 0; }
  server {
    listen unix:${socketPath};
    location / {
      proxy_pass http://127.0.0.1:${originPort};
      proxy_cache documents;
      proxy_cache_revalidate on;
      proxy_cache_bypass $asks_origin;
      # The service itself takes no ranges.
      proxy_force_ranges on;
      add_header X-Cache $upstream_cache_status;
      ${shortLived ? "proxy_ignore_headers Cache-Control; proxy_cache_valid 200 1s;" : ""}
    }
  }`;

export const varnish: Cache = {
  name: "Varnish",
  program: "varnishd",
  sendsAge: true,
  async start(t, options) {
    const folder = await temporaryFolder(t);
    const [socketPath, vcl] = [join(folder, "socket"), join(folder, "default.vcl")];
    await writeFile(vcl, varnishConfig(options));
    const own = ["-n", join(folder, "work"), "-j", "none", "-T", "none", "-s", "malloc,16m"];
    await startProgram(t, varnish.program, ["-F", "-a", socketPath, "-f", vcl, ...own], socketPath);
    return {
      socketPath,
      async lifetime(path) {
        const { headers } = await send(socketPath, { path });
        return { freshSeconds: Number(headers["x-ttl"]), staleSeconds: Number(headers["x-grace"]) };
      },
    };
  },
};

const varnishConfig = ({ originPort, shortLived }: CacheOptions): string => `
vcl 4.1;
backend default { .host = "127.0.0.1"; .port = "${originPort}"; }
sub vcl_recv {
  if (req.http.Cache-Control ~ "no-cache") { set req.hash_always_miss = true; }
}
sub vcl_backend_response {
  set beresp.http.X-Ttl = beresp.ttl;
  set beresp.http.X-Grace = beresp.grace;
  set beresp.keep = 1h;
  ${shortLived ? "set beresp.ttl = 10ms; set beresp.grace = 0s;" : ""}
}
sub vcl_deliver {
  if (obj.hits > 0) { set resp.http.X-Cache = "HIT"; } else { set resp.http.X-Cache = "MISS"; }
}`;

export interface Answer {
  readonly status: number | undefined;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

/** Sends one request on a new connection, to a port on this machine or to a socket by its path. */
export async function send(to: number | string, options: RequestOptions): Promise<Answer> {
  const address = typeof to === "number" ? { host: "127.0.0.1", port: to } : { socketPath: to };
  const [response] = await once(request({ ...address, ...options, agent: false }).end(), "response");
  return { status: response.statusCode, headers: response.headers, body: await text(response) };
}

/** Runs a program until the test ends; resolves once it accepts connections; rejects with its output if it ends first. */
export async function startProgram(
  t: Scope,
  program: string,
  args: string[],
  address: string | NetConnectOpts,
  env: NodeJS.ProcessEnv = process.env,
): Promise<void> {
  const child = spawn(part(program), args, { stdio: ["ignore", "ignore", "pipe"], env });
  const exited = once(child, "exit");
  t.after(async () => {
    child.kill("SIGTERM");
    await exited;
  });
  let printed = "";
  child.stderr.setEncoding("utf8").on("data", (chunk: string) => (printed += chunk));
  const ended = exited.then(() => Promise.reject(new Error(`${program} ended: ${printed}`)));
  const accepting = eventually(`${program} accepts connections`, () => accepts(address));
  await Promise.race([accepting, ended]);
}

async function accepts(address: string | NetConnectOpts): Promise<boolean> {
  const socket = typeof address === "string" ? connect(address) : connect(address);
  return once(socket, "connect").then(
    () => (socket.destroy(), true),
    () => false,
  );
}
