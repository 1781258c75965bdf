import { createKeyManager } from "../src/rotation/manager/manager.ts";
import postgres from "postgres";
import { postgresStore } from "../src/rotation/store/postgres/postgres.ts";

// One process that manages the keys of many issuers in one database. Prints what that took, and then what a minute of nothing takes.

const [, , url = "", wrappingKey = "", count = "", idleSeconds = ""] = process.argv;
const issuers = Array.from({ length: Number(count) }, (_, index) => `https://${index}.example`);
const atOnce = 20;

const memory = (): NodeJS.MemoryUsage => {
  globalThis.gc?.();
  return process.memoryUsage();
};

// This package shares one connection between all that listen; a pool of pg needs one for each issuer.
const sql = postgres(url, { max: atOnce, fetch_types: false });
const before = memory();
const begunMs = performance.now();
const waiting = issuers.values();
const managers: unknown[] = [];
await Promise.all(
  Array.from({ length: atOnce }, async () => {
    for (const issuer of waiting) {
      managers.push(
        await createKeyManager({
          issuer,
          store: await postgresStore(sql, { issuer }),
          wrappingKeys: [wrappingKey],
          requireStore: false,
        }),
      );
    }
  }),
);
const startMs = performance.now() - begunMs;
const after = memory();
const used = process.cpuUsage();
process.stdout.write("idle\n");
await new Promise((resolve) => setTimeout(resolve, Number(idleSeconds) * 1000));
const { user, system } = process.cpuUsage(used);
const idleCpu = (user + system) / 1e6 / Number(idleSeconds);
const kibibytes = (member: "heapUsed" | "rss"): number => (after[member] - before[member]) / 1024 / managers.length;
process.stdout.write(
  `${JSON.stringify({ startMs: startMs / managers.length, heap: kibibytes("heapUsed"), rss: kibibytes("rss"), idleCpu })}\n`,
);
process.exit();
