import { readFile, readdir } from "node:fs/promises";
import type { TestContext } from "node:test";
import type { ServiceProcess } from "./service.ts";

/** Environment of a service in which what is kept shows soon. */
export const littleRoom = { NODE_OPTIONS: "--max-semi-space-size=1 --max-old-space-size=48" };

/** What a service has of the machine now. */
export async function usageOf({ pid }: ServiceProcess): Promise<{ megabytes: number; handles: number }> {
  const [, kilobytes] = /^VmRSS:\s+(\d+) kB$/m.exec(await readFile(`/proc/${pid}/status`, "utf8")) ?? [];
  return { megabytes: Math.round(Number(kilobytes) / 1024), handles: (await readdir(`/proc/${pid}/fd`)).length };
}

/** Looks at the memory of the service until the test ends. */
export async function watchMemory(
  t: TestContext,
  service: ServiceProcess,
): Promise<{ grownMegabytes(): number; report(): string }> {
  const before = (await usageOf(service)).megabytes;
  let most = before;
  const timer = setInterval(() => {
    usageOf(service).then(
      ({ megabytes }) => (most = Math.max(most, megabytes)),
      () => {},
    );
  }, 50);
  t.after(() => clearInterval(timer));
  return { grownMegabytes: () => most - before, report: () => `${before} MB before, ${most} MB at most` };
}
