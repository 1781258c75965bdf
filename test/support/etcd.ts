import { join } from "node:path";
import { type Cuttable, cuttable } from "./cuttable.ts";
import { type Daemon, startDaemon } from "./daemon.ts";
import { part } from "./parts.ts";
import { type Scope, freePort, temporaryFolder } from "./service.ts";

/** One of three members. The others reach it through its own network, which a test can cut. */
export interface Member {
  readonly daemon: Daemon;
  readonly peers: Cuttable;
}

const url = (port: number): string => `http://127.0.0.1:${port}`;

/** Starts an etcd cluster of three members. */
export async function startEtcd(t: Scope): Promise<readonly Member[]> {
  const folder = await temporaryFolder(t);
  const plans = await Promise.all(
    ["a", "b", "c"].map(async (name) => {
      const [port, peerPort] = [await freePort(), await freePort()];
      const peers = await cuttable(peerPort);
      t.after(() => peers.close());
      return { name, port, peerPort, peers };
    }),
  );
  const cluster = plans.map(({ name, peers }) => `${name}=http://127.0.0.1:${peers.port}`).join();
  return Promise.all(
    plans.map(async ({ name, port, peerPort, peers }) => {
      const own = ["--name", name, "--data-dir", join(folder, name), "--initial-cluster", cluster];
      const clients = ["--listen-client-urls", url(port), "--advertise-client-urls", url(port)];
      const others = ["--listen-peer-urls", url(peerPort), "--initial-advertise-peer-urls", url(peers.port)];
      // This makes a password check take a millisecond, which only a test server should do.
      const quick = ["--heartbeat-interval=200", "--election-timeout=2000", "--log-level=error", "--bcrypt-cost=4"];
      const daemon = await startDaemon([part("etcd"), ...own, ...clients, ...others, ...quick], port);
      t.after(() => daemon.kill());
      return { daemon, peers };
    }),
  );
}
