import { type Daemon, startDaemon } from "./daemon.ts";
import { part } from "./parts.ts";
import { type Scope, freePort, temporaryFolder } from "./service.ts";

/** Starts a new Redis server, which loses no confirmed write and requires the password `s3cret`. */
export async function startRedis(t: Scope, ...settings: string[]): Promise<Daemon> {
  const port = await freePort();
  const own = ["--bind", "127.0.0.1", "--port", `${port}`, "--dir", await temporaryFolder(t)];
  const durable = ["--appendonly", "yes", "--appendfsync", "always", "--save", ""];
  const daemon = await startDaemon(
    [part("redis-server"), ...own, ...durable, "--requirepass", "s3cret", ...settings],
    port,
  );
  t.after(() => daemon.kill());
  return daemon;
}
