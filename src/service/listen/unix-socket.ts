import { once } from "node:events";
import { chmodSync, chownSync, lstatSync, readFileSync, unlinkSync } from "node:fs";
import { type Server, connect } from "node:net";
import { IoError } from "../../base/errors.ts";

/** A Unix socket to listen on, which only this machine can reach. */
export interface SocketAddress {
  readonly path: string;
  readonly mode: number;
  /** Name or number of the group. Default: the process's group. */
  readonly group?: string | undefined;
}

/**
 * Listens on a Unix socket. If a dead process left its socket behind, replaces it, but never replaces anything else.
 *
 * @throws IoError `ERR_LISTEN`
 * @see unix(7)
 */
export async function listenOnSocket(server: Server, { path, mode, group }: SocketAddress): Promise<void> {
  const gid = group === undefined ? undefined : gidOf(group, path);
  const isOurs = await bind(server, path);
  if (!isOurs) {
    await removeDead(path);
    if (!(await bind(server, path))) throw refused(path, "another process took it first");
  }
  try {
    if (gid !== undefined) chownSync(path, -1, gid);
    chmodSync(path, mode);
  } catch (cause) {
    server.close();
    throw refused(path, `cannot set its group and mode (${(cause as NodeJS.ErrnoException).code})`, cause);
  }
}

/**
 * Reports whether the path was free.
 *
 * @throws IoError `ERR_LISTEN` for any error other than the path being in use
 */
async function bind(server: Server, path: string): Promise<boolean> {
  // Node binds before listen() returns, so with this mask, only this user can connect until the mode is set.
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
    // Node also reports EACCES for a missing folder.
    const isFolder = code === "EACCES" || code === "ENOENT";
    const why = isFolder ? "its folder does not exist, or this user cannot write to it" : String(code);
    throw refused(path, why, error);
  }
}

/**
 * Removes a socket if no process is listening on it.
 *
 * @throws IoError `ERR_LISTEN` if a process may be listening on it, or if it is not a socket
 */
async function removeDead(path: string): Promise<void> {
  const file = lstatSync(path, { throwIfNoEntry: false });
  if (file === undefined) return;
  if (file.isSymbolicLink()) throw refused(path, "it is a symbolic link, which could point anywhere; remove it");
  if (!file.isSocket()) throw refused(path, "it is not a socket; choose another path");
  await checkDead(path);
  // Another process may have replaced the socket by now. The inode number is not enough, because the kernel reuses the
  // numbers of deleted files.
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
    throw refused(path, `it may be in use; connecting to it failed (${code})`, error);
  } finally {
    socket.destroy();
  }
  throw refused(path, "another process is listening there; stop it or choose another path");
}

/** Returns a group's number. Supports only groups in /etc/group, because Node has no function to look up a group. */
function gidOf(group: string, path: string): number {
  if (/^\d+$/.test(group)) return Number(group);
  const entry = readFileSync("/etc/group", "utf8")
    .split("\n")
    .map((line) => line.split(":"))
    .find(([name]) => name === group);
  if (entry !== undefined) return Number(entry[2]);
  throw refused(path, `/etc/group has no group ${JSON.stringify(group)}; use the group's number instead`);
}

function refused(path: string, why: string, cause?: unknown): IoError {
  return new IoError("ERR_LISTEN", `cannot listen on ${path}: ${why}`, { cause });
}
