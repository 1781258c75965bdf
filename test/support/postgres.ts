import { type ChildProcess, execFile, spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { appendFile, chmod, chown, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { madeOnce } from "./made-once.ts";
import { part } from "./parts.ts";
import { eventually, freePort, isListening } from "./service.ts";

/** A new PostgreSQL server in its own folder. Any user can connect without a password, except `locked`. */
export interface PostgresServer {
  readonly port: number;
  /** Folder of its socket. */
  readonly folder: string;
  /** Returns a URL over TCP. Default of `database`: the initial one. */
  url(database?: string): string;
  /** Runs SQL and returns the first column of the last result. */
  sql(text: string, database?: string): string[];
  /** Kills all of its processes, like a crash. */
  kill(): Promise<void>;
  start(): Promise<void>;
  /** Promotes a standby to primary. */
  promote(): Promise<void>;
  stop(): Promise<void>;
}

// PostgreSQL refuses to run as root.
const isRoot = process.getuid?.() === 0;
const idOf = (flag: string): number => Number(spawnSync("id", [flag, "postgres"], { encoding: "utf8" }).stdout);
const owner = isRoot ? { uid: idOf("-u"), gid: idOf("-g") } : {};

/** Creates a folder that the server owns. Its path is short, because a socket's path has at most 107 bytes. */
async function serverFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "jwksd-pg-"));
  if (owner.uid !== undefined) await chown(folder, owner.uid, owner.gid);
  await chmod(folder, 0o755);
  return folder;
}

function run(program: string, args: readonly string[], cwd: string, input?: string): string {
  // A megabyte is not enough for the keys of a long run.
  const options = { cwd, input, encoding: "utf8", maxBuffer: Infinity, ...owner } as const;
  const { status, stdout, stderr, error } = spawnSync(part(program), args, options);
  if (status !== 0) throw new Error(`${program} failed: ${stderr}`, { cause: error });
  return stdout;
}

/** Like {@link run}, but does not block this process. */
async function runInBackground(program: string, args: readonly string[], cwd: string): Promise<void> {
  await promisify(execFile)(part(program), args, { cwd, ...owner });
}

/** Runs `initdb` once for all test files, because copying its result takes a fifth of the time. No test writes to the result. */
async function newData(): Promise<string> {
  const encoding = ["--no-locale", "-E", "UTF8"];
  // Small log segments make the copy smaller.
  const options = ["--username", "postgres", "--auth", "trust", "--no-sync", "--wal-segsize=1", ...encoding];
  const statements = [
    "CREATE ROLE locked LOGIN PASSWORD 'right'",
    // No test needs template0, which is a third of the files.
    "UPDATE pg_database SET datistemplate = false WHERE datname = 'template0'",
    "DROP DATABASE template0",
  ];
  const version = run("initdb", ["--version"], "/");
  const hash = createHash("sha256").update([version, ...options, ...statements].join());
  const made = join(
    tmpdir(),
    `jwksd-initdb-${owner.uid ?? process.getuid?.() ?? "own"}-${hash.digest("hex").slice(0, 16)}`,
  );
  return madeOnce(made, async () => {
    const folder = await serverFolder();
    run("initdb", ["--pgdata", join(folder, "data"), ...options], folder);
    run("postgres", ["--single", "-D", join(folder, "data"), "postgres"], folder, `${statements.join("\n")}\n`);
    return join(folder, "data");
  });
}

/** Starts a server. @param settings additional lines of postgresql.conf */
export async function startPostgres(settings: readonly string[] = []): Promise<PostgresServer> {
  const folder = await serverFolder();
  const data = join(folder, "data");
  const port = await freePort();
  await runInBackground("cp", ["-R", "-p", await newData(), data], folder);
  const hba = ["local all all trust", "host all locked all scram-sha-256", "host all all all trust"];
  await writeFile(join(data, "pg_hba.conf"), [...hba, "host replication all all trust", ""].join("\n"));
  // The data need not survive a crash of the machine.
  const own = [
    `port = ${port}`,
    "listen_addresses = '127.0.0.1'",
    `unix_socket_directories = '${folder}'`,
    "fsync = off",
    "max_wal_size = 1GB",
  ];
  await appendFile(join(data, "postgresql.conf"), [...own, ...settings, ""].join("\n"));
  const server = serverIn(folder, data, port);
  await server.start();
  return server;
}

/** Starts a standby with streaming replication from a server. */
export async function startStandby(primary: PostgresServer): Promise<PostgresServer> {
  const folder = await serverFolder();
  const data = join(folder, "data");
  const port = await freePort();
  const args = ["--pgdata", data, "--write-recovery-conf", "--checkpoint=fast", "--no-sync", "-d", primary.url()];
  await runInBackground("pg_basebackup", args, folder);
  await appendFile(join(data, "postgresql.conf"), `port = ${port}\nunix_socket_directories = '${folder}'\n`);
  const server = serverIn(folder, data, port);
  await server.start();
  return server;
}

/** Reports whether a server is ready, according to line 8 of its state file. A standby is ready when it answers reads. */
const ready = (data: string): Promise<void> =>
  eventually(`a server in ${data}`, async () => {
    const lines = await readFile(join(data, "postmaster.pid"), "utf8").catch(() => "");
    return lines.split("\n")[7]?.trim() === "ready";
  });

function serverIn(folder: string, data: string, port: number): PostgresServer {
  let postmaster: ChildProcess | undefined;
  const end = async (signal: NodeJS.Signals): Promise<void> => {
    const ended = postmaster;
    postmaster = undefined;
    if (ended === undefined || ended.exitCode !== null || ended.signalCode !== null) return;
    const exit = once(ended, "exit");
    ended.kill(signal);
    await exit;
  };
  const url = (database = "postgres"): string => `postgres://postgres@127.0.0.1:${port}/${database}`;
  return {
    port,
    folder,
    url,
    sql: (text, database) =>
      run("psql", ["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-d", url(database), "-c", text], folder)
        .split("\n")
        .filter((line) => line !== ""),
    // "Immediate shutdown": without a checkpoint, so the next start recovers like after a crash, but no process is left.
    kill: () => end("SIGQUIT"),
    async start() {
      const log = join(folder, "log");
      postmaster = spawn("sh", ["-c", 'exec "$0" -D "$1" >>"$2" 2>&1', part("postgres"), data, log], {
        cwd: folder,
        stdio: "ignore",
        ...owner,
      });
      const failed = new Promise<never>((_, reject) => {
        postmaster?.once("exit", () => reject(new Error(`PostgreSQL did not start; see ${log}`)));
      });
      await Promise.race([ready(data), failed]);
    },
    promote: () => runInBackground("pg_ctl", ["promote", "--pgdata", data, "--silent"], folder),
    async stop() {
      await end("SIGINT");
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** Starts PgBouncer in front of a server, in transaction mode: each transaction may get another connection. */
export async function startPgBouncer(
  server: PostgresServer,
): Promise<{ readonly port: number; url(database?: string): string; stop(): Promise<void> }> {
  const folder = await serverFolder();
  const port = await freePort();
  const settings = [
    "[databases]",
    `* = host=127.0.0.1 port=${server.port}`,
    "[pgbouncer]",
    "listen_addr = 127.0.0.1",
    `listen_port = ${port}`,
    "unix_socket_dir =",
    "auth_type = any",
    "pool_mode = transaction",
    "default_pool_size = 3",
  ];
  settings[1] += " user=postgres";
  const file = join(folder, "pgbouncer.ini");
  await writeFile(file, `${settings.join("\n")}\n`);
  const child = spawn(part("pgbouncer"), ["-q", file], { cwd: folder, stdio: "ignore", ...owner });
  const url = (database = "postgres"): string => `postgres://postgres@127.0.0.1:${port}/${database}`;
  await eventually("PgBouncer listens", () => isListening(port));
  return {
    port,
    url,
    async stop() {
      const exit = once(child, "exit");
      child.kill("SIGKILL");
      await exit;
      await rm(folder, { recursive: true, force: true });
    },
  };
}
