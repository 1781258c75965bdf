import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const script = fileURLToPath(new URL("child.ts", import.meta.url));

// Hundreds of them start, in a third of the time with what an earlier one has compiled.
const env = { ...process.env, NODE_COMPILE_CACHE: join(tmpdir(), "jwksd-test-compiled") };

/** A process of child.ts. */
export interface Child {
  readonly process: ChildProcess;
  /** The next line that it says; `undefined` when it has ended. */
  next(): Promise<unknown>;
  /** All lines from here on. */
  rest(): Promise<unknown[]>;
  tell(line: string): void;
}

/** @param around a command that runs the process in its own surroundings, with its arguments */
export function startChild(command: string, path: string, around: readonly string[] = []): Child {
  const [program, ...args] = [...around, process.execPath, script, command, path] as const;
  // What it writes to standard error is seen.
  const child = spawn(program, args, { stdio: ["pipe", "pipe", "inherit"], env });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const next = async (): Promise<unknown> => {
    const { value, done } = (await lines.next()) as IteratorResult<string>;
    return done === true ? undefined : (JSON.parse(value) as unknown);
  };
  return {
    process: child,
    next,
    async rest() {
      const all: unknown[] = [];
      for (let line = await next(); line !== undefined; line = await next()) all.push(line);
      return all;
    },
    tell: (line) => void child.stdin.write(`${line}\n`),
  };
}

/** Ends the input of a child, and waits for the exit code. */
export async function endChild({ process }: Child): Promise<unknown> {
  process.stdin?.end();
  if (process.exitCode === null && process.signalCode === null) await once(process, "exit");
  return process.exitCode;
}
