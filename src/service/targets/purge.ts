import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { ServiceError } from "../../base/errors.ts";

/** How long a purge command may run. */
export const purgeSeconds = 60;
/** How long a command that was told to end may take. */
const graceMs = 2_000;

interface PurgeOptions {
  readonly urls: readonly string[];
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** Ends the command. */
  readonly signal: AbortSignal;
}

/**
 * Runs the command of an operator that clears a CDN. The command gets the environment of this process without the settings of jwksd, among
 * which are wrapping keys, and `JWKSD_URLS`: the URLs of the documents, a line for each. No process of the command's group is left when the
 * time is over, when `signal` aborts, or when this process ends.
 *
 * @throws ServiceError `ERR_PURGE`
 */
export async function runPurge(command: string, { urls, environment, signal }: PurgeOptions): Promise<void> {
  const own = Object.entries(environment).filter(([name]) => !/^(JWKSD_|PGPASS)/.test(name));
  const child = spawn(command, {
    shell: true,
    stdio: ["ignore", "ignore", "inherit"],
    env: { ...Object.fromEntries(own), JWKSD_URLS: urls.join("\n") },
    // The shell leads a process group: to end the shell alone would leave what it has started.
    detached: process.platform !== "win32",
  });
  const ended = once(child, "exit") as Promise<[code: number | null, signal: string | null]>;
  const kill = (): void => killGroup(child, "SIGKILL");
  const timeout = AbortSignal.timeout(purgeSeconds * 1000);
  const ending = AbortSignal.any([signal, timeout]);
  let killing: NodeJS.Timeout | undefined;
  const end = (): void => {
    killGroup(child, "SIGTERM");
    killing = setTimeout(kill, graceMs);
  };
  process.once("exit", kill);
  ending.addEventListener("abort", end, { once: true });
  if (ending.aborted) end();
  try {
    const [code, name] = await ended;
    if (code === 0 && !ending.aborted) return;
    const how = code === null ? String(name) : `exit code ${code}`;
    const why = timeout.aborted ? `took more than ${purgeSeconds} s` : `ended with ${how}`;
    throw new ServiceError(
      "ERR_PURGE",
      `the purge command ${why}; what is written stays, and the command is run again`,
    );
  } catch (cause) {
    if (cause instanceof ServiceError) throw cause;
    const { code } = cause as NodeJS.ErrnoException;
    throw new ServiceError("ERR_PURGE", `the purge command cannot be run (${code})`, { cause });
  } finally {
    ending.removeEventListener("abort", end);
    process.removeListener("exit", kill);
    clearTimeout(killing);
    // The shell may have ended before what it has started.
    if (ending.aborted) kill();
  }
}

function killGroup(child: ChildProcess, signal: NodeJS.Signals): void {
  if (child.pid === undefined) return;
  try {
    process.kill(-child.pid, signal);
  } catch {
    // The group is gone, or there are no groups here.
    child.kill(signal);
  }
}
