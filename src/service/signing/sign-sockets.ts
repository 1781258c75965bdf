import { createHash, createPublicKey } from "node:crypto";
import { readFile } from "node:fs/promises";
import { reading } from "../../base/file-errors.ts";
import { systemClock } from "../../base/clock.ts";
import { type KeyMaterialError, keyError } from "../../base/errors.ts";
import { pemBlocks } from "../../keys/jwk/pem.ts";
import { createAudit } from "./audit.ts";
import { type SignOf, signHandler } from "./handler.ts";
import { type FormerKey, createKubernetesSigner } from "./kubernetes.ts";
import type { Signing } from "../keys/signing.ts";
import { type SignSocket, checkSocketLifetimes } from "./sockets.ts";
import { hostAndPort } from "../config/addresses.ts";
import { type RunningServer, type Wanted, startHttpServer } from "../listen/http-server.ts";
import type { Logger } from "../config/log.ts";
import { readMutualTls, tlsFiles } from "../listen/mutual-tls.ts";
import { listenOnSocket } from "../listen/unix-socket.ts";
import { fingerprint, watchPaths } from "../config/watch.ts";

/** Each needs a file descriptor, of which a process often has 1,024. */
const maxConnections = 512;

const remedy = `let programs share fewer connections, or give some a socket of their own: each takes ${maxConnections}`;

/** Where sockets are to listen. */
export const wantedBy = (sockets: readonly SignSocket[]): Wanted[] =>
  sockets.map(({ setting, address, mode, group }) => [hostAndPort(address) ?? { path: address, mode, group }, setting]);

/**
 * Reads the files of sockets before a first start makes a key: that key would stay, and be the active one.
 *
 * @throws ServiceError `ERR_FILE_UNREADABLE`
 * @throws KeyMaterialError `ERR_KEY_FORMAT`
 */
export async function checkFilesOf(sockets: readonly SignSocket[]): Promise<void> {
  for (const { tls, formerKeys } of sockets) {
    if (tls !== undefined) await readMutualTls(tls);
    await readFormerKeys(formerKeys);
  }
}

/** What all sockets have in common. */
interface Common {
  readonly issuer: string;
  readonly signing: Signing;
  readonly log: Logger;
}

/**
 * Opens the sockets where others get tokens signed.
 *
 * @returns stops accepting, and answers requests under way
 * @throws ConfigError `ERR_OPTION_INVALID`
 * @throws ServiceError `ERR_LISTEN`, `ERR_FILE_UNREADABLE`
 * @throws KeyMaterialError `ERR_KEY_FORMAT`
 */
export async function startSignSockets(sockets: readonly SignSocket[], common: Common): Promise<() => Promise<void>> {
  const { signing, log } = common;
  checkSocketLifetimes(sockets, signing.maxTokenLifetimeSeconds());
  const ends: (() => Promise<void>)[] = [];
  const stop = async (): Promise<void> => void (await Promise.all(ends.map((end) => end())));
  try {
    for (const socket of sockets) {
      const { address, protocol, policy } = socket;
      const audit = createAudit(systemClock, (counts) => log.info({ socket: address, ...counts }, "tokens signed"));
      const start = protocol === "kubernetes" ? startKubernetes : startHttp;
      const end = await start(socket, { signing, policy, audit }, common);
      ends.push(() => end().finally(audit.end));
      log.info({ socket: address, protocol }, "signs");
    }
  } catch (error) {
    await stop();
    throw error;
  }
  return stop;
}

async function startHttp(
  { address, tls: folder, mode, group }: SignSocket,
  sign: SignOf,
  { log }: Common,
): Promise<() => Promise<void>> {
  const handle = signHandler(sign);
  const start = (where: Parameters<typeof startHttpServer>[0]): Promise<RunningServer> =>
    startHttpServer(where, () => handle, {
      maxConnections,
      onOverload: (lost, message) => log.warn({ socket: address, ...lost }, message),
      remedy,
    });
  const hostPort = hostAndPort(address);
  if (folder === undefined || hostPort === undefined) {
    return (await start({ path: address, mode, group })).stop;
  }
  // Before the files are read, so that no change is missed.
  const baseline = await fingerprint(tlsFiles(folder));
  const server = await start({ ...hostPort, tls: await readMutualTls(folder) });
  const watch = watchPaths(tlsFiles(folder), baseline, async () => {
    try {
      server.renew(await readMutualTls(folder));
      log.info({ socket: address }, "certificates reloaded");
    } catch (error) {
      log.error({ socket: address }, `new certificates refused, the old ones stay in use: ${(error as Error).message}`);
    }
  });
  return () => {
    watch.stop();
    return server.stop();
  };
}

async function startKubernetes(
  { address: path, mode, group, formerKeys }: SignSocket,
  sign: SignOf,
  { issuer }: Common,
): Promise<() => Promise<void>> {
  const { server, stop } = createKubernetesSigner(sign, {
    issuer,
    formerKeys: await readFormerKeys(formerKeys),
    clock: systemClock,
  });
  await listenOnSocket(server, { path, mode, group });
  return stop;
}

/** All keys of all files. The kid is that of Kubernetes: the SHA-256 of the key in base64url. */
async function readFormerKeys(files: readonly string[]): Promise<FormerKey[]> {
  const keys = await Promise.all(
    files.map(async (file) => {
      const blocks = pemBlocks(await reading(file, () => readFile(file, "utf8")), file);
      // A block that is passed over could be a key whose tokens are still in use.
      if (blocks.length === 0 || blocks.some(({ label }) => label !== "PUBLIC KEY")) throw noPublicKey(file);
      return blocks.map(({ text }) => {
        const spki = spkiOf(text, file);
        return { kid: createHash("sha256").update(spki).digest("base64url"), spki };
      });
    }),
  );
  return keys.flat();
}

function spkiOf(pem: string, file: string): Uint8Array {
  try {
    return createPublicKey(pem).export({ type: "spki", format: "der" });
  } catch {
    throw noPublicKey(file);
  }
}

const noPublicKey = (file: string): KeyMaterialError =>
  keyError(
    "ERR_KEY_FORMAT",
    file,
    'a file of former keys holds public keys in PEM ("BEGIN PUBLIC KEY"), and nothing else',
  );
