import { type ChildProcess, fork } from "node:child_process";
import { on, once } from "node:events";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { RotationPolicyOptions } from "../../src/rotation/manager/index.ts";

/** What a process is told at its start. */
export interface Settings {
  /** Of the load balancer. */
  readonly origin: string;
  readonly port: number;
  /** URLs of the databases: of the keys, and of better-auth with and without jwksd. */
  readonly databases: { readonly jwksd: string; readonly managed: string; readonly own: string };
  readonly policy: RotationPolicyOptions;
  readonly rotateEverySeconds: number;
  readonly now: number;
}

export type Asked =
  | { readonly type: "time"; readonly now: number }
  | { readonly type: "revoke" }
  | { readonly type: "stop" };

/** What was done, and the keys then. */
interface Done {
  readonly type: "done";
  readonly active: string;
  /** Since when every process publishes the next key, in epoch milliseconds; `Infinity` where there is none. */
  readonly announcedAt: number;
  /** When the next planned step is due, in epoch milliseconds. */
  readonly nextAt: number;
  /** How many are removed, without those that were revoked. */
  readonly removed: number;
}

export type Said = { readonly type: "listening" } | { readonly type: "trouble"; readonly what: string } | Done;

const script = fileURLToPath(new URL("op-child.ts", import.meta.url));

// Several start, in less time with what an earlier one has compiled.
const env = { ...process.env, TZ: "UTC", NODE_COMPILE_CACHE: join(tmpdir(), "jwksd-test-compiled") };

/** One process of the provider. */
export interface Op {
  readonly process: ChildProcess;
  readonly port: number;
  /** What went wrong with its keys. */
  readonly troubles: readonly string[];
  ask(asked: Asked): Promise<Done>;
  /** With SIGKILL. */
  kill(): Promise<void>;
}

export async function startOp(settings: Settings): Promise<Op> {
  const child = fork(script, [JSON.stringify(settings)], {
    execArgv: [],
    env,
    serialization: "advanced",
    // better-auth writes of each token that it refuses; what fails is counted, with its text.
    stdio: ["ignore", "inherit", "ignore", "ipc"],
  });
  const troubles: string[] = [];
  const messages = on(child, "message", { close: ["exit"] });
  const next = async <Type extends Said["type"]>(type: Type): Promise<Said & { type: Type }> => {
    for (;;) {
      const { value, done } = await messages.next();
      if (done === true) throw new Error("the process has ended");
      const [said] = value as [Said];
      if (said.type === "trouble") troubles.push(said.what);
      else if (said.type === type) return said as Said & { type: Type };
    }
  };
  await next("listening");
  return {
    process: child,
    port: settings.port,
    troubles,
    async ask(asked) {
      child.send(asked);
      return next("done");
    },
    async kill() {
      const exit = once(child, "exit");
      child.kill("SIGKILL");
      await exit;
    },
  };
}
