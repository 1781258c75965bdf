import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { eventually, isListening } from "./service.ts";

/** A server that a test started. Its data survives a restart. */
export interface Daemon {
  readonly port: number;
  /** Kills the server, like a crash. */
  kill(): Promise<void>;
  start(): Promise<void>;
  /** Suspends the server until {@link resume}. */
  pause(): void;
  resume(): void;
}

/** Starts a server with its command. It is ready when it listens on the port. */
export async function startDaemon([program, ...args]: readonly [string, ...string[]], port: number): Promise<Daemon> {
  let child: ChildProcess | undefined;
  let exited: Promise<unknown> | undefined;
  const daemon: Daemon = {
    port,
    async kill() {
      child?.kill("SIGKILL");
      await exited;
    },
    async start() {
      const started = spawn(program, args, { stdio: ["ignore", "ignore", "pipe"] });
      child = started;
      exited = once(started, "exit");
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
