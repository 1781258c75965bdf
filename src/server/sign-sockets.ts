import { systemClock } from "../clock.ts";
import { createAudit } from "../sign-server/audit.ts";
import { signHandler } from "../sign-server/handler.ts";
import type { SigningKeys } from "../sign-server/signing-keys.ts";
import { type SignSocket, checkSockets } from "../sign-server/sockets.ts";
import { logOverload } from "./connections.ts";
import { startHttpServer } from "./http-server.ts";
import { readJsonObject } from "./json-file.ts";
import type { Logger } from "./logger.ts";
import { policyOf } from "./open-store.ts";
import type { Settings } from "./settings.ts";

/** Each needs a file descriptor, of which a process often has 1,024. */
const maxConnections = 512;

/** The sockets where others get tokens signed. */
export interface SignSockets {
  /** Stops accepting, and answers requests under way. */
  stop(this: void): Promise<void>;
}

type SocketSettings = Pick<Settings, "signSocket" | "signConfig">;

/** Whether others sign through this process. */
export function hasSockets({ signSocket, signConfig }: SocketSettings): boolean {
  return signSocket !== undefined || signConfig !== undefined;
}

/** @throws ConfigError `ERR_CONFIG_FORMAT`, `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID` */
export async function readSockets(settings: Settings): Promise<readonly SignSocket[]> {
  const { signSocket, signConfig } = settings;
  const one = signSocket === undefined ? [] : [{ path: signSocket, mode: 0o600, policy: {} }];
  if (signConfig === undefined) return one;
  const members = await readJsonObject(signConfig, "the file of sign sockets");
  return [...one, ...checkSockets(members, signConfig, policyOf(settings).maxTokenLifetimeSeconds)];
}

/** @throws ServiceError `ERR_LISTEN` */
export async function startSignSockets(
  sockets: readonly SignSocket[],
  { issuer, keys, log }: { readonly issuer: string; readonly keys: SigningKeys; readonly log: Logger },
): Promise<SignSockets> {
  const ends: (() => Promise<void>)[] = [];
  const stop = async (): Promise<void> => void (await Promise.all(ends.map((end) => end())));
  try {
    for (const { path, mode, group, policy } of sockets) {
      const audit = createAudit(systemClock, (counts) => log.info({ socket: path, ...counts }, "tokens signed"));
      const handle = signHandler({ issuer, keys, policy, audit, clock: systemClock });
      const server = await startHttpServer({ path, mode, group }, () => handle, {
        maxConnections,
        onOverload: (overload) => logOverload(log, overload, { socket: path }),
      });
      ends.push(() => server.stop().finally(audit.end));
      log.info({ socket: path }, "signs");
    }
  } catch (error) {
    await stop();
    throw error;
  }
  return { stop };
}
