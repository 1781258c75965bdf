import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { createConnection } from "mysql2/promise";
import { type Daemon, startDaemon } from "./daemon.ts";
import { part } from "./parts.ts";
import { type Scope, freePort, temporaryFolder } from "./service.ts";

/** Starts a new MariaDB server with a `jwksd` database, for which the `jwksd` user needs the password `s3cret`. */
export async function startMariadb(t: Scope): Promise<Daemon> {
  const folder = await temporaryFolder(t);
  const data = join(folder, "data");
  // At startup, a server deletes files in the temporary folder that look like its own.
  const own = [
    "--no-defaults",
    `--datadir=${data}`,
    `--tmpdir=${folder}`,
    ...(process.getuid?.() === 0 ? ["--user=root"] : []),
  ];
  const install = ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"];
  await promisify(execFile)(part("mariadb-install-db"), [...own, ...install]);
  const port = await freePort();
  const files = [`--socket=${join(folder, "socket")}`, `--pid-file=${join(folder, "pid")}`];
  const size = ["--innodb-buffer-pool-size=32M", "--innodb-log-file-size=16M", "--max-connections=500"];
  const log = [`--log-bin=${join(folder, "log")}`, "--server-id=1"];
  const address = ["--bind-address=127.0.0.1", `--port=${port}`];
  const daemon = await startDaemon([part("mariadbd"), ...own, ...files, ...size, ...log, ...address], port);
  t.after(() => daemon.kill());
  const root = await createConnection({ host: "127.0.0.1", port, user: "root", multipleStatements: true });
  await root.query("CREATE DATABASE jwksd; CREATE USER jwksd IDENTIFIED BY 's3cret'; GRANT ALL ON jwksd.* TO jwksd");
  await root.end();
  return daemon;
}
