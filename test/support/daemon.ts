import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { part } from "./parts.ts";
import { eventually, isListening } from "./service.ts";

/** A server that a test started, and whose data outlives it. */
export interface Daemon {
  readonly port: number;
  /** Ends it at once, as a crash does. */
  kill(): Promise<void>;
  start(): Promise<void>;
  /** It answers nobody until it goes on. */
  pause(): void;
  resume(): void;
}

/** Starts a server of the system, which listens on a port of this machine when it is ready. */
export async function startDaemon(program: string, args: readonly string[], port: number): Promise<Daemon> {
  let child: ChildProcess | undefined;
  const daemon: Daemon = {
    port,
    async kill() {
      const ended = child;
      child = undefined;
      if (ended === undefined || ended.exitCode !== null || ended.signalCode !== null) return;
      const exit = once(ended, "exit");
      ended.kill("SIGKILL");
      await exit;
    },
    async start() {
      const started = spawn(part(program), args, { stdio: ["ignore", "ignore", "pipe"] });
      child = started;
      let errors = "";
      started.stderr.setEncoding("utf8").on("data", (text: string) => (errors = (errors + text).slice(-5_000)));
      await eventually(`${program} listens`, async () => {
        if (started.exitCode !== null) throw new Error(`${program} ended: ${errors}`);
        return isListening(port);
      });
    },
    pause: () => void child?.kill("SIGSTOP"),
    resume: () => void child?.kill("SIGCONT"),
  };
  await daemon.start();
  return daemon;
}
