import { systemClock } from "../../base/clock.ts";
import { hostAndPort } from "../config/addresses.ts";
import type { Logger } from "../config/logger.ts";
import { fingerprint, watchPaths } from "../config/watch-files.ts";
import { type RunningServer, type TcpAddress, type Wanted, startHttpServer } from "../listen/http-server.ts";
import { readMutualTls, tlsFiles } from "../listen/mutual-tls.ts";
import { type SocketAddress, listenOnSocket } from "../listen/unix-socket.ts";
import { readFormerKeys } from "./former-kubernetes-keys.ts";
import { type Signing, type SocketSigning, signHandler } from "./handler.ts";
import { createKubernetesSigner } from "./kubernetes.ts";
import { type SignSocket, checkSocketLifetimes } from "./sign-socket-settings.ts";
import { createAudit } from "./signature-counts.ts";

/** Maximum number of connections. Each needs a file descriptor, and a process can often have only 1,024. */
const maxConnections = 512;

const remedy = `let programs share connections, or give some of them their own socket, because each socket accepts only ${maxConnections} connections`;

/** Returns the addresses of sockets, each with the setting that names it. */
export const wantedBy = (sockets: readonly SignSocket[]): Wanted[] =>
  sockets.map(({ setting, address, mode, group }) => [hostAndPort(address) ?? { path: address, mode, group }, setting]);

/**
 * Checks that the sockets' files can be read. Called before a key is generated on the first start, because that key
 * would remain active even if startup then failed.
 *
 * @throws IoError `ERR_FILE_UNREADABLE`
 * @throws KeyMaterialError `ERR_KEY_FORMAT`
 */
export async function checkFilesOf(sockets: readonly SignSocket[]): Promise<void> {
  for (const { tls, formerKeys } of sockets) {
    if (tls !== undefined) await readMutualTls(tls);
    await readFormerKeys(formerKeys);
  }
}

/** Parts that all sockets share. */
interface Common {
  readonly issuer: string;
  readonly signing: Signing;
  readonly log: Logger;
}

/**
 * Opens the sockets through which other programs request signed tokens.
 *
 * @returns a function that stops accepting connections and finishes the requests in flight
 * @throws ConfigError `ERR_OPTION_INVALID`
 * @throws IoError `ERR_LISTEN`, `ERR_FILE_UNREADABLE`
 * @throws KeyMaterialError `ERR_KEY_FORMAT`
 */
export async function startSignSockets(sockets: readonly SignSocket[], common: Common): Promise<() => Promise<void>> {
  const { signing, log } = common;
  checkSocketLifetimes(sockets, signing.source.maxTokenLifetimeSeconds);
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
  sign: SocketSigning,
  { log }: Common,
): Promise<() => Promise<void>> {
  const handle = signHandler(sign);
  const start = (where: TcpAddress | SocketAddress): Promise<RunningServer> =>
    startHttpServer(where, () => handle, {
      maxConnections,
      onOverload: (lost, message) => log.warn({ socket: address, ...lost }, message),
      remedy,
    });
  const hostPort = hostAndPort(address);
  if (folder === undefined || hostPort === undefined) {
    return (await start({ path: address, mode, group })).stop;
  }
  // Taken before the files are read, so no change is missed.
  const baseline = await fingerprint(tlsFiles(folder));
  const server = await start({ ...hostPort, tls: await readMutualTls(folder) });
  const watch = watchPaths(tlsFiles(folder), baseline, async () => {
    try {
      server.renew(await readMutualTls(folder));
      log.info({ socket: address }, "certificates reloaded");
    } catch (error) {
      log.error(
        { socket: address },
        `the old certificates remain in use, because the new ones were rejected: ${(error as Error).message}`,
      );
    }
  });
  return () => {
    watch.stop();
    return server.stop();
  };
}

async function startKubernetes(
  { address: path, mode, group, formerKeys }: SignSocket,
  sign: SocketSigning,
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
