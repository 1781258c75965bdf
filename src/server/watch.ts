import { readdir, realpath, stat } from "node:fs/promises";
import { join } from "node:path";
import { isKeyFileName } from "../node/key-files.ts";

/**
 * Calls `onChange` after the files at `paths` (files, or folders of files) have changed since `baseline` and then stayed the same
 * for one interval, so that a file is not read while it is being written.
 *
 * It looks at what the paths lead to instead of asking the system for events: events get lost on network and overlay file
 * systems, and where mounted secrets are swapped by a symbolic link, as Kubernetes does, none is sent for the file itself.
 *
 * @param baseline {@link fingerprint} of the paths, taken before they were read
 */
export function watchPaths(
  paths: readonly string[],
  baseline: string,
  onChange: () => Promise<unknown>,
  { intervalMs = 400 } = {},
): { stop(): void } {
  let known = baseline;
  let last = baseline;
  let timer: NodeJS.Timeout | undefined;
  let stopped = false;
  const look = async (): Promise<void> => {
    const seen = await fingerprint(paths);
    if (seen !== known && seen === last && !stopped) {
      known = seen;
      await onChange();
    }
    last = seen;
    schedule();
  };
  const schedule = (): void => {
    if (!stopped) timer = setTimeout(() => void look(), intervalMs);
  };
  schedule();
  return {
    stop() {
      stopped = true;
      clearTimeout(timer);
    },
  };
}

/** A text that changes whenever what the paths lead to changes. */
export async function fingerprint(paths: readonly string[]): Promise<string> {
  const states = paths.map(async (path) => {
    // Not the folders in a folder: keys are not read from them, and there may be many, or links in a circle.
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
