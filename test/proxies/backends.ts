import { type IncomingMessage, createServer } from "node:http";
import { join, posix } from "node:path";
import { text } from "node:stream/consumers";
import type { TestContext } from "node:test";
import { startProgram } from "../support/caches.ts";
import { listening } from "../support/listening.ts";
import { portsOf } from "../support/ports.ts";
import { freePort } from "../support/service.ts";

// Programs behind the guard. Each returns what it saw of a request.

export interface Seen {
  /** The paths that the program could have meant: one for each way in which its frameworks read a request line. */
  readonly paths: readonly string[];
  /** Identity headers, without their prefix, in lower case. */
  readonly identity: Readonly<Record<string, string>>;
  readonly method: string;
  /** Length of the body. */
  readonly body: number;
}

export interface Backend {
  readonly name: string;
  /** The programs that it needs. */
  readonly programs: readonly string[];
  /** Starts it. @returns the port */
  start(t: TestContext): Promise<number>;
}

function decoded(path: string): string {
  try {
    return decodeURIComponent(path);
  } catch {
    return path;
  }
}

/** Returns how Node frameworks read a request target: unchanged, decoded once or twice, resolved as a URL, or normalized as a file. */
function readings(target: string): string[] {
  const [path = ""] = target.split(/[?#]/);
  const once = decoded(path);
  const url = URL.canParse(target, "http://localhost") ? [new URL(target, "http://localhost").pathname] : [];
  const files = [once, decoded(once)].map((name) => posix.normalize(name.replaceAll("\\", "/")));
  return [path, once, decoded(once), ...url, ...url.map(decoded), ...files];
}

const identityPrefix = "x-jwksd-";

/** Returns what the program sees of a request whose body has this length. */
function seenOf({ method = "", url = "", headers }: IncomingMessage, body: number): string {
  // As applications that accept underscores read them.
  const fields = Object.entries(headers).map(([name, value]) => [name.replaceAll(/[_.]/g, "-"), value] as const);
  const identity = fields
    .filter(([name]) => name.startsWith(identityPrefix))
    .map(([name, value]) => [name.slice(identityPrefix.length), value]);
  return JSON.stringify({ paths: readings(url), identity: Object.fromEntries(identity), method, body });
}

const node: Backend = {
  name: "Node",
  programs: [],
  start(t) {
    const server = createServer(async (request, response) => {
      const json = seenOf(request, (await text(request).catch(() => "")).length);
      response.writeHead(200, { "Content-Type": "application/json", "Content-Length": Buffer.byteLength(json) });
      response.end(json);
    });
    server.on("upgrade", (request, socket) => {
      const head = `HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: ${request.headers.upgrade}\r\n\r\n`;
      socket.end(head + seenOf(request, 0));
    });
    return listening(t, server);
  },
};

const python: Backend = {
  name: "Python",
  programs: ["python3"],
  start: async (t) => {
    const [port = 0] = await portsOf(t, ["python3", join(import.meta.dirname, "backend.py")]);
    return port;
  },
};

const php: Backend = {
  name: "PHP",
  programs: ["php"],
  async start(t) {
    const port = await freePort();
    const folder = join(import.meta.dirname, "php");
    await startProgram(t, "php", ["-S", `127.0.0.1:${port}`, "-t", folder], { host: "127.0.0.1", port });
    return port;
  },
};

export const backends: readonly Backend[] = [node, python, php];
