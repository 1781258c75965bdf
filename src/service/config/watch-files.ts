import { readdir, realpath, stat } from "node:fs/promises";
import { join } from "node:path";
import { systemClock } from "../../base/clock.ts";
import { isKeyFileName } from "../../node/read-key-files.ts";

const intervalMs = 400;

/**
 * Calls `onChange` when the files at `paths` (files, or folders with files) have changed since `baseline` and then
 * stayed the same for one interval, so that no file is read while it is being written.
 *
 * Polls instead of using file events, because network and overlay file systems lose events, and Kubernetes updates
 * mounted secrets by replacing a symbolic link, without an event for the file.
 *
 * @param baseline {@link fingerprint} of the paths, taken before they were read
 */
export function watchPaths(
  paths: readonly string[],
  baseline: string,
  onChange: () => Promise<unknown>,
): { stop(): void } {
  let known = baseline;
  let last = baseline;
  return every(intervalMs, async (isStopped) => {
    const seen = await fingerprint(paths);
    if (seen !== known && seen === last && !isStopped()) {
      known = seen;
      await onChange();
    }
    last = seen;
  });
}

/** Runs an action repeatedly. Each run starts `ms` after the previous one has ended. */
export function every(ms: number, action: (isStopped: () => boolean) => Promise<void>): { stop(): void } {
  let isStopped = false;
  let cancel = systemClock.setTimer(tick, ms);
  function tick(): void {
    void action(() => isStopped).then(() => {
      if (!isStopped) cancel = systemClock.setTimer(tick, ms);
    });
  }
  return {
    stop() {
      isStopped = true;
      cancel();
    },
  };
}

/** Returns a string that changes whenever the files change. */
export async function fingerprint(paths: readonly string[]): Promise<string> {
  const states = paths.map(async (path) => {
    // Not recursive, because keys are not read from subfolders, and links may form a cycle.
    const names = (await readdir(path).catch(() => [])).filter(isKeyFileName).sort();
    return Promise.all([path, ...names.map((name) => join(path, name))].map(stateOf));
  });
  return (await Promise.all(states)).flat().join("\n");
}

async function stateOf(path: string): Promise<string> {
  try {
    const real = await realpath(path);
    const { ino, size, mtimeMs, ctimeMs } = await stat(real);
    return `${real} ${ino} ${size} ${mtimeMs} ${ctimeMs}`;
  } catch (error) {
    return `${path} ${(error as NodeJS.ErrnoException).code}`;
  }
}
