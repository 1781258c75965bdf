import { chmodSync, chownSync, lstatSync, readFileSync, unlinkSync } from "node:fs";
import { type Server, connect } from "node:net";
import { once } from "node:events";
import { ServiceError } from "../../base/errors.ts";

/** Where a server listens that only this machine reaches. */
export interface SocketAddress {
  readonly path: string;
  readonly mode: number;
  /** Name or number. Default: that of the process. */
  readonly group?: string | undefined;
}

/**
 * Listens on a Unix socket. What a process left that has died is taken over; nothing else is.
 *
 * @throws ServiceError `ERR_LISTEN`
 * @see unix(7)
 */
export async function listenOnSocket(server: Server, { path, mode, group }: SocketAddress): Promise<void> {
  const gid = group === undefined ? undefined : gidOf(group, path);
  const isOurs = await bind(server, path);
  if (!isOurs) {
    await removeDead(path);
    if (!(await bind(server, path))) throw refused(path, "another process was quicker");
  }
  try {
    if (gid !== undefined) chownSync(path, -1, gid);
    chmodSync(path, mode);
  } catch (cause) {
    server.close();
    throw refused(path, `its group and mode cannot be set (${(cause as NodeJS.ErrnoException).code})`, cause);
  }
}

/** Whether nothing was in the way. */
async function bind(server: Server, path: string): Promise<boolean> {
  // Node binds before listen() returns. So nobody but this user can connect before the mode is set.
  const before = process.umask(0o177);
  try {
    server.listen({ path, backlog: 4096 });
  } finally {
    process.umask(before);
  }
  try {
    await once(server, "listening");
    return true;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "EADDRINUSE") return false;
    // Node says EACCES for a folder that is not there, too.
    const isPlace = code === "EACCES" || code === "ENOENT";
    const why = isPlace ? "its folder does not exist, or this user may not write to it" : String(code);
    throw refused(path, why, error);
  }
}

/** Removes a socket to which no process listens. @throws ServiceError `ERR_LISTEN` for all else */
async function removeDead(path: string): Promise<void> {
  const file = lstatSync(path, { throwIfNoEntry: false });
  if (file === undefined) return;
  if (file.isSymbolicLink()) throw refused(path, "it is a symbolic link, which could lead anywhere; remove it");
  if (!file.isSocket()) throw refused(path, "it is a file, and no socket; choose another path");
  await checkDead(path);
  // Another process may have taken it over by now. The kernel gives the number of a file that is gone to the next one.
  const now = lstatSync(path, { throwIfNoEntry: false });
  if (now?.ino === file.ino && now.ctimeMs === file.ctimeMs) unlinkSync(path);
}

async function checkDead(path: string): Promise<void> {
  const socket = connect({ path });
  try {
    await once(socket, "connect");
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ECONNREFUSED" || code === "ENOENT") return;
    throw refused(path, `it may be in use, since it cannot be asked (${code})`, error);
  } finally {
    socket.destroy();
  }
  throw refused(path, "another process listens there; stop it or choose another path");
}

/** The number of a group. Node cannot ask for it, so only groups of /etc/group have names here. */
function gidOf(group: string, path: string): number {
  if (/^\d+$/.test(group)) return Number(group);
  const line = readFileSync("/etc/group", "utf8")
    .split("\n")
    .map((line) => line.split(":"))
    .find(([name]) => name === group);
  if (line !== undefined) return Number(line[2]);
  throw refused(path, `/etc/group has no group ${JSON.stringify(group)}; give its number`);
}

function refused(path: string, why: string, cause?: unknown): ServiceError {
  return new ServiceError("ERR_LISTEN", `cannot listen on ${path}: ${why}`, { cause });
}
