import { readFileSync, readdirSync } from "node:fs";

/** Returns the child processes of this process. */
export function children(parent = process.pid): number[] {
  return readdirSync("/proc")
    .map(Number)
    .filter((pid) => Number.isInteger(pid) && statusOf(pid, "PPid") === String(parent));
}

/** Returns a line of /proc/PID/status; `undefined` if the process has ended. */
export function statusOf(pid: number, field: string): string | undefined {
  try {
    return new RegExp(`^${field}:\\s+(.*)$`, "m").exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1];
  } catch {
    return undefined;
  }
}
