import { createHash, createPublicKey } from "node:crypto";
import { readFile } from "node:fs/promises";
import { systemClock } from "../clock.ts";
import { KeyMaterialError, ServiceError } from "../errors.ts";
import { createAudit } from "../sign-server/audit.ts";
import { type SignOf, signHandler } from "../sign-server/handler.ts";
import { type FormerKey, createKubernetesSigner } from "../sign-server/kubernetes.ts";
import type { SigningKeys } from "../sign-server/signing-keys.ts";
import { type SignSocket, checkSockets } from "../sign-server/sockets.ts";
import { logOverload } from "./connections.ts";
import { startHttpServer } from "./http-server.ts";
import { readJsonObject } from "./json-file.ts";
import type { Logger } from "./logger.ts";
import { policyOf } from "./open-store.ts";
import type { Settings } from "./settings.ts";
import { listenOnSocket } from "./unix-socket.ts";

/** Each needs a file descriptor, of which a process often has 1,024. */
const maxConnections = 512;

const usual = { mode: 0o600, policy: {}, protocol: "http", formerKeys: [] } as const;

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
  const one = signSocket === undefined ? [] : [{ path: signSocket, ...usual }];
  if (signConfig === undefined) return one;
  const members = await readJsonObject(signConfig, "the file of sign sockets");
  return [...one, ...checkSockets(members, signConfig, policyOf(settings).maxTokenLifetimeSeconds)];
}

/** What sockets sign with, and whom they tell. */
interface Signing {
  readonly issuer: string;
  readonly keys: SigningKeys;
  readonly maxTokenLifetimeSeconds: number;
  readonly log: Logger;
}

/**
 * @throws ServiceError `ERR_LISTEN`, `ERR_FILE_UNREADABLE`
 * @throws KeyMaterialError `ERR_KEY_FORMAT`
 */
export async function startSignSockets(sockets: readonly SignSocket[], signing: Signing): Promise<SignSockets> {
  const ends: (() => Promise<void>)[] = [];
  const stop = async (): Promise<void> => void (await Promise.all(ends.map((end) => end())));
  try {
    for (const socket of sockets) {
      const { path, protocol } = socket;
      ends.push(
        await (protocol === "kubernetes" ? startKubernetes : startHttp)(socket, signOf(socket, signing), signing),
      );
      signing.log.info({ socket: path, protocol }, "signs");
    }
  } catch (error) {
    await stop();
    throw error;
  }
  return { stop };
}

function signOf({ path, policy }: SignSocket, { issuer, keys, log }: Signing): SignOf {
  const audit = createAudit(systemClock, (counts) => log.info({ socket: path, ...counts }, "tokens signed"));
  return { issuer, keys, policy, audit, clock: systemClock };
}

async function startHttp(
  { path, mode, group }: SignSocket,
  sign: SignOf,
  { log }: Signing,
): Promise<() => Promise<void>> {
  const handle = signHandler(sign);
  const server = await startHttpServer({ path, mode, group }, () => handle, {
    maxConnections,
    onOverload: (overload) => logOverload(log, overload, { socket: path }),
  });
  return () => server.stop().finally(sign.audit.end);
}

async function startKubernetes(
  { path, mode, group, formerKeys }: SignSocket,
  sign: SignOf,
  { maxTokenLifetimeSeconds }: Signing,
): Promise<() => Promise<void>> {
  const maxLifetimeSeconds = sign.policy.maxLifetimeSeconds ?? maxTokenLifetimeSeconds;
  const { server, stop } = createKubernetesSigner(sign, maxLifetimeSeconds, await readFormerKeys(formerKeys));
  await listenOnSocket(server, { path, mode, group });
  return () => stop().finally(sign.audit.end);
}

/** The kid is that of Kubernetes: the SHA-256 of the key in base64url. */
function readFormerKeys(files: readonly string[]): Promise<FormerKey[]> {
  return Promise.all(
    files.map(async (file) => {
      const text = await readFile(file, "utf8").catch((cause: NodeJS.ErrnoException) => {
        throw new ServiceError("ERR_FILE_UNREADABLE", `${file} cannot be read (${cause.code})`, { cause });
      });
      if (!text.includes("-----BEGIN PUBLIC KEY-----")) throw noPublicKey(file);
      try {
        const spki = createPublicKey(text).export({ type: "spki", format: "der" });
        return { kid: createHash("sha256").update(spki).digest("base64url"), spki };
      } catch {
        throw noPublicKey(file);
      }
    }),
  );
}

const noPublicKey = (file: string): KeyMaterialError =>
  new KeyMaterialError("ERR_KEY_FORMAT", `${file} is no public key in PEM ("BEGIN PUBLIC KEY")`);
