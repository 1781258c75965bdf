import { readFile, readdir } from "node:fs/promises";
import type { TestContext } from "node:test";
import type { ServiceProcess } from "./service.ts";

/** Environment with a small heap, in which a leak shows soon. */
export const smallHeap = { NODE_OPTIONS: "--max-semi-space-size=1 --max-old-space-size=48" };

/** Returns the memory and the open handles of a service. */
export async function usageOf({ pid }: ServiceProcess): Promise<{ megabytes: number; handles: number }> {
  const [, kilobytes] = /^VmRSS:\s+(\d+) kB$/m.exec(await readFile(`/proc/${pid}/status`, "utf8")) ?? [];
  return { megabytes: Math.round(Number(kilobytes) / 1024), handles: (await readdir(`/proc/${pid}/fd`)).length };
}

/** Samples a service's memory until the test ends. */
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
