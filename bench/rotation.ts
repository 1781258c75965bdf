import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { systemClock } from "../src/base/clock.ts";
import { createKeyManager } from "../src/rotation/manager/manager.ts";
import { type StoreAccess, createStoreAccess } from "../src/rotation/manager/store-access.ts";
import { type KeyRecord, activeKey } from "../src/rotation/rules/key-records.ts";
import { rotationPolicy } from "../src/rotation/rules/policy.ts";
import type { Register } from "../src/rotation/store/register.ts";
import { sqliteStore } from "../src/rotation/store/sqlite/sqlite.ts";
import { commandStore, custodyOf, keyFor, newWrappingKey, noIssuer } from "../test/support/managed.ts";
import type { Plan } from "./comparisons.ts";
import { median, start } from "./measure.ts";
import { type Section, table } from "./report.ts";

const counts = [10, 1_000] as const;
const main = fileURLToPath(new URL("../src/cli/main.ts", import.meta.url));

/** Medians in milliseconds. */
interface Measured {
  readonly count: number;
  readonly open: number;
  readonly manager: number;
  readonly step: number;
  readonly follow: number;
  readonly wire: number;
}

/** Measures a SQLite store after many rotations: opening it, a step, and a step by another process. */
export async function rotation({ rounds }: Plan): Promise<Section> {
  const results: Measured[] = [];
  for (const count of counts) results.push(await measure(count, rounds * 3));
  const rows = results.map(({ count, open, manager, step, follow, wire }) =>
    [count.toLocaleString("en")].concat([open, manager, step, follow, wire].map((ms) => ms.toFixed(1))),
  );
  const { wire, step } = results.find(({ count }) => count === 1_000) as Measured;
  return {
    title: "Rotation",
    text: [
      "The SQLite store has one active key, and a tombstone for each removed key. Medians in milliseconds:",
      table(["tombstones", "open and read", "start a manager", "step", "read of one", "commit to the wire"], rows),
    ].join("\n\n"),
    goals: [
      {
        name: "commit by another process to the wire: within a second",
        reached: wire < 1_000,
        measured: `${Math.round(wire)} ms with 1,000 tombstones`,
      },
      {
        name: "a step in SQLite with 1,000 tombstones: within 50 ms",
        reached: step <= 50,
        measured: `${step.toFixed(1)} ms`,
      },
    ],
  };
}

async function measure(count: number, rounds: number): Promise<Measured> {
  const folder = await mkdtemp(join(tmpdir(), "jwksd-bench-rotation-"));
  try {
    const wrappingKey = newWrappingKey();
    const path = join(folder, "keys.db");
    await writeFile(join(folder, "wrapping.key"), `${wrappingKey}\n`, { mode: 0o600 });
    const filled = sqliteStore(path);
    await fill(await accessTo(filled, wrappingKey), wrappingKey, count);
    await filled.close?.();
    const times = { open: [] as number[], manager: [] as number[], step: [] as number[], follow: [] as number[] };
    for (let round = 0; round < rounds; round += 1) {
      const store = await timed(times.open, async () => {
        const store = sqliteStore(path);
        await (await accessTo(store, wrappingKey)).read();
        return store;
      });
      const options = { issuer: noIssuer, store, wrappingKeys: [wrappingKey] };
      const manager = await timed(times.manager, () => createKeyManager(options));
      await manager.close();
      await store.close?.();
    }
    const running = [sqliteStore(path), sqliteStore(path)];
    const [one, other] = (await Promise.all(running.map((store) => accessTo(store, wrappingKey)))) as [
      StoreAccess,
      StoreAccess,
    ];
    await Promise.all([one.read(), other.read()]);
    for (let round = 0; round < rounds * 3; round += 1) {
      await timed(times.step, () => touch(one));
      await timed(times.follow, () => other.read());
    }
    for (const store of running) await store.close?.();
    const wire = await toTheWire(folder, path, wrappingKey, rounds);
    const { open, manager, step, follow } = times;
    const steps = { step: median(step), follow: median(follow) };
    return { count, open: median(open), manager: median(manager), ...steps, wire: median(wire) };
  } finally {
    await rm(folder, { recursive: true });
  }
}

export async function timed<T>(times: number[], action: () => Promise<T>): Promise<T> {
  const begunMs = performance.now();
  const result = await action();
  times.push(performance.now() - begunMs);
  return result;
}

/** Returns access to a store, as a process with the wrapping key has it. */
export async function accessTo(store: Register, wrappingKey: string, issuer = noIssuer): Promise<StoreAccess> {
  const custody = await custodyOf(store, [wrappingKey], { issuer, isChosen: true });
  const { signal } = new AbortController();
  return createStoreAccess(custody, { policy: rotationPolicy(), clock: systemClock, signal });
}

/** Adds the records of this many rotations. */
export async function fill(access: StoreAccess, wrappingKey: string, count: number): Promise<void> {
  const now = Date.now();
  const tombstones = Array.from({ length: count }, (): KeyRecord => {
    // 32 random bytes are as long as a thumbprint.
    const kid = newWrappingKey();
    return { kid, use: "sig", state: "removed", thumbprint: kid, endedAt: now };
  });
  const key = await keyFor(wrappingKey);
  const active: KeyRecord = { ...key, state: "active", unannounced: true, announcedAt: now, activatedAt: now };
  await access.change(async () => ({ records: [...tombstones, active] }));
}

/** Reads, changes one record and commits, like every planned step. */
export async function touch(access: StoreAccess): Promise<void> {
  await access.change(async ({ document: { records } }) => {
    const active = activeKey(records, "sig");
    const event = {
      at: Date.now(),
      type: "rewrapped",
      kid: active?.kid ?? "",
      use: "sig",
      reason: "benchmark",
    } as const;
    const changed = records.map((record) =>
      record === active ? Object.assign({}, active, { activatedAt: (active.activatedAt ?? 0) + 1 }) : record,
    );
    return { records: changed, events: [event] };
  });
}

/** Measures the time from a command's commit by this process to the service's first response that shows it. */
async function toTheWire(folder: string, path: string, wrappingKey: string, rounds: number): Promise<number[]> {
  const args = ["serve", "--data", folder, "--issuer", noIssuer, "--port", "0", "--admin", "off", "--json-logs"];
  const server = await start([process.execPath, main, ...args]);
  const etag = async (): Promise<string | null> => {
    const reply = await fetch(server.url);
    await reply.arrayBuffer();
    return reply.headers.get("etag");
  };
  const times: number[] = [];
  try {
    for (let round = 0; round < rounds; round += 1) {
      const key = await keyFor(wrappingKey);
      for (const command of [{ type: "announce", key } as const, { type: "remove", kid: key.kid } as const]) {
        const before = await etag();
        const { doneMs } = await commandStore(path, command);
        while ((await etag()) === before) if (performance.now() > doneMs + 10_000) throw new Error("nothing changes");
        times.push(performance.now() - doneMs);
      }
    }
  } finally {
    await server.stop();
  }
  return times;
}
