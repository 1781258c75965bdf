import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import type { TestContext } from "node:test";

/** Runs a program that prints this number of ports until the test ends. */
export async function portsOf(
  t: TestContext,
  [program, ...args]: readonly [string, ...string[]],
  count = 1,
): Promise<number[]> {
  const ports: number[] = [];
  const child = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"] });
  const closed = once(child, "close");
  t.after(async () => {
    // On SIGTERM, workerd waits for requests, which may hang.
    child.kill("SIGKILL");
    await closed;
  });
  let errors = "";
  child.stderr.setEncoding("utf8").on("data", (chunk: string) => (errors += chunk));
  for await (const line of createInterface({ input: child.stdout })) {
    const [, port] = /^(\d+)$|"port":(\d+)/.exec(line)?.filter((part) => part !== undefined) ?? [];
    if (port !== undefined) ports.push(Number(port));
    if (ports.length === count) return ports;
  }
  throw new Error(`${program} ended: ${errors}`);
}
