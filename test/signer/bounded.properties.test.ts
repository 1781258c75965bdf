import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import * as jose from "jose";
import { SignerError } from "../../src/index.ts";
import { boundSigner } from "../../src/keys/signer/bounded-signer.ts";
import { ecKey, withoutPrivate } from "../support/keys.ts";
import { settled, simulatedClock } from "../support/simulated.ts";
import { soak } from "../support/soak.ts";
import { signature } from "../token/compact.ts";

const key = ecKey("a");
const publicKey = (await jose.importJWK(withoutPrivate(key), "ES256")) as jose.CryptoKey;
const message = new TextEncoder().encode("header.claims");
const good = signature("ES256", key)(Buffer.from(message));

/** One event, and the number of microtasks until the next one; `"settle"` waits until nothing can happen anymore. */
type Step =
  | { readonly does: "call" }
  | { readonly does: "abort" | "sign" | "fail" | "return an invalid signature"; readonly which: number }
  | { readonly does: "wait"; readonly ms: number };
type Schedule = readonly { readonly step: Step; readonly microtasks: number | "settle" }[];

const which = fc.nat({ max: 7 });
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 4, arbitrary: fc.constant({ does: "call" } as const) },
  {
    weight: 4,
    arbitrary: fc.record({
      does: fc.constantFrom("abort", "sign", "sign", "fail", "return an invalid signature"),
      which,
    }),
  },
  { weight: 1, arbitrary: fc.record({ does: fc.constant("wait" as const), ms: fc.integer({ min: 1, max: 400 }) }) },
);
const microtasks = fc.oneof(fc.nat({ max: 6 }), fc.constant("settle" as const));
const schedules: fc.Arbitrary<Schedule> = fc.array(fc.record({ step, microtasks }), { maxLength: 40, size: "max" });
const limits = fc.record({ maxConcurrent: fc.integer({ min: 1, max: 3 }), maxQueued: fc.nat({ max: 3 }) });
const timeoutMs = 1_000;

interface Operation {
  readonly call: number;
  open: boolean;
  end(result: Promise<Uint8Array>): void;
}

test("under any schedule, at most maxConcurrent calls are in flight, calls start in order, and every call settles in time", async () => {
  await fc.assert(
    fc.asyncProperty(limits, schedules, async ({ maxConcurrent, maxQueued }, schedule) => {
      const clock = simulatedClock();
      const operations: Operation[] = [];
      const inFlight = (): Operation[] => operations.filter(({ open }) => open);
      const calls: { aborting: AbortController; atMs: number; outcome?: string }[] = [];
      // The message identifies the call of an operation.
      const signer = {
        publicKey: withoutPrivate(key),
        sign: ({ message }: { message: Uint8Array }) =>
          new Promise<Uint8Array>((resolve) => {
            const end = (result: Promise<Uint8Array>): void => {
              operation.open = false;
              resolve(result);
            };
            const operation: Operation = { call: (message[0] ?? 0) - 1, open: true, end };
            operations.push(operation);
            assert.ok(
              calls[operation.call]?.aborting.signal.aborted !== true,
              "an operation started for an aborted call",
            );
            assert.ok(inFlight().length <= maxConcurrent, "more calls in flight than allowed");
          }),
      };
      const sign = boundSigner(signer, publicKey, "k", { maxConcurrent, maxQueued, timeoutMs }, clock);

      function call(): void {
        const mine: (typeof calls)[number] = { aborting: new AbortController(), atMs: clock.now() };
        calls.push(mine);
        sign(Uint8Array.from([calls.length]), mine.aborting.signal).then(
          () => (mine.outcome = "signed"),
          (error: unknown) => {
            assert.ok(error instanceof SignerError);
            mine.outcome = error.code;
          },
        );
      }

      const isInTime = ({ atMs, outcome }: (typeof calls)[number]): boolean =>
        outcome !== undefined || clock.now() < atMs + timeoutMs;

      for (const { step, microtasks } of schedule) {
        if (step.does === "call") call();
        else if (step.does === "wait") await clock.advance(step.ms);
        else if (step.does === "abort") calls[step.which % calls.length]?.aborting.abort();
        else finish(step.does, inFlight()[step.which % maxConcurrent]);
        if (microtasks === "settle") await until(() => calls.every(isInTime));
        else for (let tick = 0; tick < microtasks; tick += 1) await Promise.resolve();
      }
      await clock.advance(timeoutMs);
      await until(() => calls.every(({ outcome }) => outcome !== undefined));

      assert.equal(clock.timers, 0);
      const order = operations.map(({ call }) => call);
      assert.deepEqual(
        order,
        order.toSorted((one, other) => one - other),
        "not in order",
      );
      // The guard must still work afterwards.
      inFlight().forEach((operation) => finish("fail", operation));
      await settled();
      const last = sign(message);
      await settled();
      operations.at(-1)?.end(Promise.resolve(good));
      assert.equal((await last).length, 64);
    }),
    { numRuns: soak(150, 30) },
  );
});

function finish(how: "sign" | "fail" | "return an invalid signature", operation: Operation | undefined): void {
  if (how === "sign") operation?.end(Promise.resolve(good));
  else if (how === "return an invalid signature") operation?.end(Promise.resolve(new Uint8Array(63)));
  else operation?.end(Promise.reject(new Error("no")));
}

/** Waits for Web Crypto, which works on its own threads. */
async function until(holds: () => boolean): Promise<void> {
  await settled();
  for (const endMs = performance.now() + 10_000; !holds() && performance.now() < endMs;) await settled();
  assert.ok(holds(), "a call has not settled");
}
