import { readFileSync, readdirSync } from "node:fs";

/** Processes whose parent is this one. */
export function children(parent = process.pid): number[] {
  return readdirSync("/proc")
    .map(Number)
    .filter((pid) => Number.isInteger(pid) && statusOf(pid, "PPid") === String(parent));
}

/** A line of /proc/PID/status; `undefined` when the process is gone. */
export function statusOf(pid: number, field: string): string | undefined {
  try {
    return new RegExp(`^${field}:\\s+(.*)$`, "m").exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1];
  } catch {
    return undefined;
  }
}
