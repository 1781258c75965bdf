import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const script = fileURLToPath(new URL("child.ts", import.meta.url));

// Hundreds of processes start, in a third of the time with the compile cache of an earlier one.
const env = { ...process.env, NODE_COMPILE_CACHE: join(tmpdir(), "jwksd-test-compiled") };

/** A process of child.ts. */
export interface Child {
  readonly process: ChildProcess;
  /** Returns the next line of its output; `undefined` when it has ended. */
  next(): Promise<unknown>;
  /** Returns all further lines of its output. */
  rest(): Promise<unknown[]>;
  send(line: string): void;
}

/** Starts child.ts. @param around command, with arguments, that runs the process in its own environment */
export function startChild(command: string, path: string, around: readonly string[] = []): Child {
  const [program, ...args] = [...around, process.execPath, script, command, path] as const;
  // The test's output contains its standard error.
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
    send: (line) => void child.stdin.write(`${line}\n`),
  };
}

/** Closes the input of a child and waits for its exit code. */
export async function endChild({ process }: Child): Promise<unknown> {
  process.stdin?.end();
  if (process.exitCode === null && process.signalCode === null) await once(process, "exit");
  return process.exitCode;
}
