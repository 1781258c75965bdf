import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Clock } from "../../src/base/clock.ts";
import { type Logger, loggerOf } from "../../src/service/config/logger.ts";
import { readGuardConfig } from "../../src/service/guard/guard-config.ts";
import { type RunningGuard, startGuard } from "../../src/service/guard/guard.ts";
import { type Scope, temporaryFolder } from "../support/service.ts";
import {
  type HeaderLine,
  type WireReply,
  type WireRequest,
  exchange,
  parseReplies,
  requestText,
} from "../support/wire.ts";

/** A `jwksd guard` inside this process. */
export interface GuardHere extends RunningGuard {
  /** Path of its configuration file. */
  readonly file: string;
  readonly log: readonly { readonly level: string; readonly message: string; readonly fields: object }[];
  /** Sends a check unchanged. */
  send(...lines: readonly HeaderLine[]): Promise<WireReply>;
  /** Sends a check for a request like nginx. */
  ask(request: WireRequest & { readonly host?: string; readonly id?: string }): Promise<WireReply>;
  /** Returns the status of an admin page and its text. */
  page(path: string): Promise<string>;
}

/**
 * Starts a guard on free ports; it is stopped with the test.
 *
 * @param config content of its file
 * @param afterRead called with the file after each read
 */
export async function startGuardHere(
  t: Scope,
  config: object,
  clock?: Clock,
  afterRead: (file: string) => Promise<void> = async () => {},
): Promise<GuardHere> {
  const file = join(await temporaryFolder(t), "guard.json");
  await writeFile(file, JSON.stringify({ for: "nginx", listen: "127.0.0.1:0", admin: "127.0.0.1:0", ...config }));
  const log: GuardHere["log"][number][] = [];
  const logger: Logger = loggerOf((level, fields, message) => log.push({ level, message, fields }));
  const read = async () => {
    const config = await readGuardConfig({ flags: {}, environment: {}, configFile: file });
    await afterRead(file);
    return config;
  };
  const guard = await startGuard(await read(), read, logger, clock);
  let stopped: Promise<void> | undefined;
  const stop: RunningGuard["stop"] = (signal) => (stopped ??= guard.stop(signal));
  t.after(stop);
  const send: GuardHere["send"] = async (...lines) => {
    const text = requestText({ target: "/check", headers: lines }, ["Connection", "close"]);
    const [reply] = parseReplies(await exchange(guard.port, text), ["GET"]);
    return reply as WireReply;
  };
  return {
    ...guard,
    stop,
    file,
    log,
    send,
    ask: ({ method = "GET", target, headers = [], host = "api.example.com", id = "1" }) =>
      send(...described(method, host, target, id), ...headers),
    async page(path) {
      const response = await fetch(guard.adminUrl + path);
      return `${response.status} ${await response.text()}`;
    },
  };
}

/** Returns the headers with which nginx describes a request. */
export const described = (method: string, host: string, target: string, id = "1"): HeaderLine[] => [
  ["X-Original-Method", method],
  ["X-Original-Host", host],
  ["X-Original-URI", target],
  ["X-Original-Request-ID", id],
];

/** Returns the response that nginx gives to the client for a refusal. */
export function refusalIn({ status, headers, body }: WireReply): WireReply {
  const { "x-jwksd-denied-status": denied = "", "x-jwksd-denied-body": text = "" } = headers;
  if (status !== 403 || text !== body) throw new Error(`not a refusal: ${status} ${text}`);
  const fields = [
    ["www-authenticate", "x-jwksd-denied-challenge"],
    ["dpop-nonce", "x-jwksd-denied-nonce"],
    ["retry-after", "x-jwksd-denied-retry-after"],
  ] as const;
  const moved = fields.flatMap(([name, from]) => (headers[from] === undefined ? [] : [[name, headers[from]] as const]));
  const others = Object.entries(headers).filter(([name]) => !name.startsWith("x-jwksd-"));
  return { status: Number(denied), headers: Object.fromEntries([...others, ...moved]), body };
}
