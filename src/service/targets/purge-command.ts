import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { IoError } from "../../base/errors.ts";

/** Time limit for a purge command, in seconds. */
export const purgeSeconds = 60;
/** How long a command may take to exit after SIGTERM, in milliseconds. */
const graceMs = 2_000;

interface PurgeOptions {
  readonly urls: readonly string[];
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** Signal that terminates the command. */
  readonly signal: AbortSignal;
}

/**
 * Runs the operator's command that purges a CDN. The command gets this process's environment and `JWKSD_URLS`, which
 * contains the documents' URLs, one per line. It does not get jwksd's settings, because they may include wrapping keys.
 * After the time limit, or if `signal` aborts or this process exits, no process in the command's group is left running.
 *
 * @throws IoError `ERR_PURGE`
 */
export async function runPurge(command: string, { urls, environment, signal }: PurgeOptions): Promise<void> {
  const own = Object.entries(environment).filter(([name]) => !/^(JWKSD_|PGPASS)/.test(name));
  const child = spawn(command, {
    shell: true,
    stdio: ["ignore", "ignore", "inherit"],
    env: { ...Object.fromEntries(own), JWKSD_URLS: urls.join("\n") },
    // The shell leads a process group, because if only the shell were killed, its child processes would keep running.
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
    const outcome = code === null ? String(name) : `exit code ${code}`;
    const why = timeout.aborted ? `took more than ${purgeSeconds} s` : `ended with ${outcome}`;
    throw new IoError(
      "ERR_PURGE",
      `the purge command ${why}; the documents that were written stay in place, and jwksd will run the command again`,
    );
  } catch (cause) {
    if (cause instanceof IoError) throw cause;
    const { code } = cause as NodeJS.ErrnoException;
    throw new IoError("ERR_PURGE", `cannot run the purge command (${code})`, { cause });
  } finally {
    ending.removeEventListener("abort", end);
    process.removeListener("exit", kill);
    clearTimeout(killing);
    // The shell may have exited before its child processes.
    if (ending.aborted) kill();
  }
}

function killGroup(child: ChildProcess, signal: NodeJS.Signals): void {
  if (child.pid === undefined) return;
  try {
    process.kill(-child.pid, signal);
  } catch {
    // The group's processes have exited, or this system has no groups.
    child.kill(signal);
  }
}
