import { spawn } from "node:child_process";
import { once } from "node:events";
import { ServiceError } from "../../base/errors.ts";

const timeoutMs = 60_000;

/**
 * Runs the command of an operator that clears a CDN. It gets the environment of this process without the settings of jwksd, among which are
 * wrapping keys, and `JWKSD_URLS`: the URLs of the documents, a line for each.
 *
 * @throws ServiceError `ERR_PURGE`
 */
export async function runPurge(
  command: string,
  urls: readonly string[],
  environment: Readonly<Record<string, string | undefined>>,
): Promise<void> {
  const own = Object.entries(environment).filter(([name]) => !/^(JWKSD_|PGPASS)/.test(name));
  const child = spawn(command, {
    shell: true,
    stdio: ["ignore", "ignore", "inherit"],
    env: { ...Object.fromEntries(own), JWKSD_URLS: urls.join("\n") },
    timeout: timeoutMs,
  });
  const ended = once(child, "exit").catch((cause: NodeJS.ErrnoException) => {
    throw new ServiceError("ERR_PURGE", `the purge command cannot be run (${cause.code})`, { cause });
  });
  const [code, signal] = (await ended) as [number | null, string | null];
  if (code === 0) return;
  throw new ServiceError(
    "ERR_PURGE",
    `the purge command ended with ${code === null ? String(signal) : `exit code ${code}`}; what is written stays, and the command is run again`,
  );
}
