import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";

/** Result of a verification. */
export interface Verdict {
  readonly verified: boolean;
  readonly error?: string;
  /** Duration in milliseconds. */
  readonly ms?: number;
}

/** A verifier in its own process. It reads one question per line and writes an answer to each. */
export interface Child {
  ask(this: void, question: object): Promise<Verdict>;
  stop(this: void): Promise<void>;
  /** Kills a process that does not respond. */
  kill(this: void): void;
}

export function startChild(name: string, [command = "", ...args]: readonly string[], env: NodeJS.ProcessEnv): Child {
  const child = spawn(command, args, { env: { ...process.env, ...env }, stdio: ["pipe", "pipe", "inherit"] });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  let last: Promise<unknown> = Promise.resolve();
  const answer = async (question: object): Promise<Verdict> => {
    child.stdin.write(`${JSON.stringify(question)}\n`);
    const { value, done } = await lines.next();
    if (done === true) throw new Error(`${name} has ended`);
    return JSON.parse(value) as Verdict;
  };
  return {
    // One question at a time, because there is one pipe.
    ask: (question) => {
      const asked = last.then(() => answer(question));
      last = asked.catch(() => {});
      return asked;
    },
    stop: async () => {
      child.stdin.end();
      if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
    },
    kill: () => void child.kill("SIGKILL"),
  };
}
