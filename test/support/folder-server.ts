import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { type Server, createServer } from "node:http";
import { join } from "node:path";
import { listening } from "./listening.ts";

/** A server in this process that serves a `jwksd publish` folder like a configured web server. */
export interface FolderServer {
  readonly url: string;
  /** Response that replaces the folder's content. */
  instead: { readonly status: number; readonly body?: string } | undefined;
  /** `Cache-Control` of responses. Default: the mode's value. */
  cacheControl: string | undefined;
  /** Whether a cache in front returns its first response to each request that does not bypass it. */
  isCaching: boolean;
  readonly requests: readonly string[];
}

type Scope = { after(fn: () => Promise<void>): void };

export async function serveFolder(t: Scope, folder: string): Promise<FolderServer> {
  const cached = new Map<string, Buffer>();
  const requests: string[] = [];
  const server: Server = createServer((request, response) => {
    void (async () => {
      requests.push(`${request.method} ${request.url}`);
      if (state.instead !== undefined) return response.writeHead(state.instead.status).end(state.instead.body);
      const path = (request.url ?? "").replace(/\?.*/, "");
      const isShort = existsSync(join(folder, ".jwksd/rotation"));
      const mode = isShort
        ? "public, max-age=300, must-revalidate"
        : "public, max-age=3600, stale-while-revalidate=3600";
      const body = await readFile(join(folder, path)).catch(() => undefined);
      if (body === undefined) return response.writeHead(404).end();
      const isPast = request.headers["cache-control"] === "no-cache";
      const shown = (state.isCaching && !isPast && cached.get(path)) || body;
      cached.set(path, shown);
      return response
        .writeHead(200, {
          "Cache-Control": state.cacheControl ?? mode,
          "Content-Type": path.includes("openid") ? "application/json" : "application/jwk-set+json",
        })
        .end(shown);
    })();
  });
  const port = await listening(t, server);
  const state: FolderServer = {
    url: `http://127.0.0.1:${port}`,
    instead: undefined,
    cacheControl: undefined,
    isCaching: false,
    requests,
  };
  return state;
}
