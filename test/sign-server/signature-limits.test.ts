import assert from "node:assert/strict";
import { test } from "node:test";
import { type SignCounts, createAudit } from "../../src/service/signing/audit.ts";
import { limitSignatures } from "../../src/service/signing/signature-limits.ts";
import { simulatedClock } from "../support/simulated.ts";

const busy = { code: "ERR_SIGNER_BUSY", retryable: true };

test("one connection has 64 signatures under way, all have 1,024, and each that ends makes room", async () => {
  const limited = limitSignatures(createAudit(simulatedClock(), () => {}));
  const connections = Array.from({ length: 17 }, () => ({}));
  const [greedy = {}, ...others] = connections;
  const end = Promise.withResolvers<void>();
  const sign = (connection: object): Promise<void> => limited(connection, async () => {});
  const fill = (connection: object): Promise<void>[] =>
    Array.from({ length: 64 }, () => limited(connection, () => end.promise));
  const underWay = fill(greedy);
  await assert.rejects(sign(greedy), busy);
  await sign(others[0] ?? {});
  for (const other of others.slice(0, 15)) underWay.push(...fill(other));
  await assert.rejects(sign(others[15] ?? {}), busy);
  end.resolve();
  await Promise.all(underWay);
  for (const connection of connections) await sign(connection);
});

test("a signature that fails makes room as well", async () => {
  const limited = limitSignatures(createAudit(simulatedClock(), () => {}));
  const failure = new Error("no signature");
  const failing = Array.from({ length: 64 }, () => limited(failure, () => Promise.reject(failure)));
  for (const { status } of await Promise.allSettled(failing)) assert.equal(status, "rejected");
  await limited(failure, async () => {});
});

test("a request that outlives its socket sets no timer, which would keep the process", async () => {
  const clock = simulatedClock();
  const reports: SignCounts[] = [];
  const audit = createAudit(clock, (counts) => reports.push(counts));
  const limited = limitSignatures(audit);
  const cut = Promise.withResolvers<void>();
  const underWay = limited({}, () => cut.promise);
  await limited({}, async () => {});
  audit.end();
  cut.resolve();
  await underWay;
  assert.deepEqual([clock.timers, reports], [0, [{ signed: 1, refused: {} }]]);
});
