import assert from "node:assert/strict";
import { createPrivateKey, createPublicKey, sign, verify } from "node:crypto";
import { getEventListeners } from "node:events";
import { type TestContext, describe, test } from "node:test";
import { inspect } from "node:util";
import * as jose from "jose";
import {
  type JwksdErrorCode,
  type SignInput,
  type Signer,
  type SignerLimits,
  SignerError,
  localSigner,
} from "../../src/index.ts";
import { type BoundedSign, boundSigner } from "../../src/keys/signer/bounded-signer.ts";
import { ecKey, withoutPrivate } from "../support/keys.ts";
import { type SimulatedClock, settled, simulatedClock } from "../support/simulated.ts";
import { unhandledRejections } from "../support/unhandled.ts";
import { signature, verdict } from "../token/compact.ts";

const key = ecKey("a");
const publicJwk = withoutPrivate(key);
const publicKey = (await jose.importJWK(publicJwk, "ES256")) as jose.CryptoKey;
const message = new TextEncoder().encode("header.claims");
const good = new Uint8Array(signature("ES256", key)(Buffer.from(message)));
const verifies = (given: Uint8Array): boolean =>
  verify(
    "sha256",
    message,
    { key: createPublicKey({ key: publicJwk, format: "jwk" }), dsaEncoding: "ieee-p1363" },
    given,
  );

/** An operation at the backend, which ends when the test ends it. */
interface Operation {
  readonly input: SignInput;
  readonly end: (result: unknown) => void;
  readonly fail: (reason: unknown) => void;
}

interface Guarded {
  readonly clock: SimulatedClock;
  /** Operations in the order of their arrival at the backend. */
  readonly operations: Operation[];
  readonly sign: BoundedSign;
}

/** Bounds a backend that the test controls. After the test, checks that no timer and no rejection remains. */
function guarded(t: TestContext, limits?: SignerLimits): Guarded {
  const clock = simulatedClock();
  const operations: Operation[] = [];
  const signer: Signer = {
    publicKey: publicJwk,
    sign: (input) =>
      new Promise((resolve, fail) => operations.push({ input, end: (result) => resolve(result as Uint8Array), fail })),
  };
  const unhandled = unhandledRejections();
  t.after(async () => {
    await settled();
    assert.deepEqual(await unhandled(), []);
    assert.equal(clock.timers, 0, "a timer remains");
  });
  return { clock, operations, sign: boundSigner(signer, publicKey, 'kid "a"', limits, clock) };
}

/** Bounds a signer that responds immediately. */
const around = (sign: () => unknown, limits?: SignerLimits): BoundedSign =>
  boundSigner({ publicKey: publicJwk, sign: sign as Signer["sign"] }, publicKey, 'kid "a"', limits);

function end(operation: Operation | undefined, result: unknown = good): void {
  assert.ok(operation !== undefined, "no such operation");
  operation.end(result);
}

describe("a signer's result", () => {
  const der = sign("sha256", message, createPrivateKey({ key: { ...key }, format: "jwk" }));
  const other = signature("ES256", ecKey("b"))(Buffer.from(message));
  const elsewhere = signature("ES256", key)(Buffer.from("other.claims"));
  const rows: [name: string, given: unknown, verdict: "accepted" | JwksdErrorCode][] = [
    ["64 bytes that verify", good, "accepted"],
    ["a Buffer", Buffer.from(good), "accepted"],
    ["a slice of a larger buffer", Uint8Array.from([1, ...good, 2]).subarray(1, 65), "accepted"],
    ["DER", der, "ERR_SIGNER_BAD_SIGNATURE"],
    ["63 bytes", good.subarray(1), "ERR_SIGNER_BAD_SIGNATURE"],
    ["65 bytes", Uint8Array.from([0, ...good]), "ERR_SIGNER_BAD_SIGNATURE"],
    ["no bytes", new Uint8Array(), "ERR_SIGNER_BAD_SIGNATURE"],
    ["64 zeros", new Uint8Array(64), "ERR_SIGNER_BAD_SIGNATURE"],
    ["s then r", Uint8Array.from([...good.subarray(32), ...good.subarray(0, 32)]), "ERR_SIGNER_BAD_SIGNATURE"],
    ["one bit off", Uint8Array.from(good, (byte, index) => byte ^ Number(index === 63)), "ERR_SIGNER_BAD_SIGNATURE"],
    ["another key's signature", other, "ERR_SIGNER_BAD_SIGNATURE"],
    ["another message's signature", elsewhere, "ERR_SIGNER_BAD_SIGNATURE"],
    ["nothing", undefined, "ERR_SIGNER_BAD_SIGNATURE"],
    ["null", null, "ERR_SIGNER_BAD_SIGNATURE"],
    ["base64", Buffer.from(good).toString("base64"), "ERR_SIGNER_BAD_SIGNATURE"],
    ["an array of numbers", [...good], "ERR_SIGNER_BAD_SIGNATURE"],
    ["an ArrayBuffer", good.slice().buffer, "ERR_SIGNER_BAD_SIGNATURE"],
  ];
  for (const [name, given, expected] of rows) {
    test(`${name}: ${expected}`, async () => {
      for (const attempt of [() => Promise.resolve(given), () => given]) {
        const signed = around(attempt)(message);
        assert.equal(await verdict(signed), expected);
        if (expected === "accepted") assert.ok(verifies(await signed));
        else await assert.rejects(signed, { name: "SignerError", retryable: false, message: /^kid "a": / });
      }
    });
  }

  test("the message for a DER signature mentions DER", async () => {
    await assert.rejects(around(() => der)(message), {
      message: /\d\d bytes instead of the 64 bytes of an ES256 signature.*if the signature is in DER, convert it/,
    });
  });

  test("a signer's later changes to its buffer have no effect", async () => {
    const buffer = Uint8Array.from(good);
    const signed = await around(() => buffer)(message);
    buffer.fill(0);
    assert.ok(verifies(signed));
  });
});

test("a signer receives the message, its SHA-256 and a signal", async (t) => {
  const { sign, operations } = guarded(t);
  const signed = sign(message);
  await settled();
  const { input } = operations[0] as Operation;
  assert.deepEqual(input.message, message);
  assert.deepEqual(new Uint8Array(input.digest), new Uint8Array(await crypto.subtle.digest("SHA-256", message)));
  assert.equal(input.signal?.aborted, false);
  end(operations[0]);
  await signed;
});

const rejecting = (reason: unknown): Promise<never> => Promise.reject(reason);

function throwing(reason: unknown): never {
  throw reason;
}

describe("an error from a signer", () => {
  const throttled = new SignerError("ERR_SIGNER_THROTTLED", "slow down");
  const unauthorized = new SignerError("ERR_SIGNER_UNAUTHORIZED", "no");
  const rows: [name: string, thrown: unknown, code: JwksdErrorCode, retryable: boolean][] = [
    ["a retryable SignerError", throttled, "ERR_SIGNER_THROTTLED", true],
    ["a SignerError that is not retryable", unauthorized, "ERR_SIGNER_UNAUTHORIZED", false],
    ["an Error", new Error("connect ECONNREFUSED"), "ERR_SIGNER_UNAVAILABLE", true],
    ["a TypeError", new TypeError("x is not a function"), "ERR_SIGNER_UNAVAILABLE", true],
    ["the signer's own AbortError", new DOMException("aborted", "AbortError"), "ERR_SIGNER_UNAVAILABLE", true],
    ["a string", "no", "ERR_SIGNER_UNAVAILABLE", true],
    ["null", null, "ERR_SIGNER_UNAVAILABLE", true],
    ["nothing", undefined, "ERR_SIGNER_UNAVAILABLE", true],
  ];
  for (const [name, thrown, code, retryable] of rows) {
    test(`${name}: ${code}`, async () => {
      for (const attempt of [() => rejecting(thrown), () => throwing(thrown)]) {
        const error = await around(attempt)(message).catch((error: unknown) => error);
        assert.ok(error instanceof SignerError);
        assert.deepEqual([error.code, error.retryable], [code, retryable]);
        if (thrown instanceof SignerError) assert.equal(error, thrown);
        else assert.equal(error.cause, thrown);
      }
    });
  }

  test("becomes the cause, but its text does not appear in the message", async () => {
    const error = await around(() => Promise.reject(new Error("PIN 1234")))(message).catch((error: Error) => error);
    assert.ok(error instanceof SignerError);
    assert.doesNotMatch(error.message, /1234/);
  });
});

describe("a local signer, recognized by its identity rather than its shape", () => {
  const impostors: Readonly<Record<string, (local: Signer) => unknown>> = {
    "a copy": (local) => ({ ...local, publicKey: publicJwk }),
    "an object that inherits from it": (local) => Object.create(local, { publicKey: { value: publicJwk } }),
    "a proxy": (local) => new Proxy(local, {}),
    "a signer that calls it": (local) => ({ publicKey: publicJwk, sign: (input: SignInput) => local.sign(input) }),
  };
  for (const [name, impostor] of Object.entries(impostors)) {
    test(`the signature of ${name} is checked: ERR_SIGNER_BAD_SIGNATURE`, async () => {
      const signer = impostor(await localSigner(ecKey("b"))) as Signer;
      const sign = boundSigner(signer, publicKey, 'kid "a"');
      assert.equal(await verdict(sign(message)), "ERR_SIGNER_BAD_SIGNATURE");
    });
  }

  test("cannot be changed to sign with or publish a different key", async () => {
    const signer = await localSigner(key);
    const other = await localSigner(ecKey("b"));
    for (const [member, value] of Object.entries(other)) assert.equal(Reflect.set(signer, member, value), false);
    assert.ok(Object.isFrozen(signer));
    assert.ok(verifies(await boundSigner(signer, publicKey, 'kid "a"')(message)));
  });

  test("has no timer or queue, never refuses a call, and reports an abort", async () => {
    const clock = simulatedClock();
    const limits = { maxConcurrent: 1, maxQueued: 0, timeoutMs: 1 };
    const sign = boundSigner(await localSigner(key), publicKey, 'kid "a"', limits, clock);
    const aborting = new AbortController();
    const aborted = verdict(sign(message, aborting.signal));
    const signatures = Array.from({ length: 50 }, () => sign(message));
    aborting.abort();
    assert.equal(clock.timers, 0);
    for (const signature of await Promise.all(signatures)) assert.ok(verifies(signature));
    assert.deepEqual(
      [await aborted, await verdict(sign(message, aborting.signal))],
      Array(2).fill("ERR_SIGNER_ABORTED"),
    );
    assert.deepEqual(getEventListeners(aborting.signal, "abort"), []);
    const wrong = { maxConcurrent: 0 };
    const signer = await localSigner(key);
    assert.throws(() => boundSigner(signer, publicKey, 'kid "a"', wrong), { code: "ERR_OPTION_INVALID" });
  });
});

describe("concurrency and queue", () => {
  test("up to 16 signatures may be in flight by default", async (t) => {
    const { sign, operations } = guarded(t);
    const calls = Array.from({ length: 20 }, () => sign(message));
    await settled();
    assert.equal(operations.length, 16);
    for (let index = 0; index < 20; index += 1) {
      end(operations[index]);
      await settled();
    }
    await Promise.all(calls);
  });

  for (const maxQueued of [0, 3]) {
    test(`with maxQueued ${maxQueued}, one more call is refused immediately and can be retried`, async (t) => {
      const { sign, operations } = guarded(t, { maxConcurrent: 1, maxQueued });
      const accepted = Array.from({ length: 1 + maxQueued }, () => sign(message));
      const refused = sign(message);
      await assert.rejects(refused, { code: "ERR_SIGNER_BUSY", retryable: true, message: /^kid "a"/ });
      for (let index = 0; index <= maxQueued; index += 1) {
        await settled();
        end(operations[index]);
      }
      await Promise.all(accepted);
      const again = sign(message);
      await settled();
      end(operations.at(-1));
      await again;
    });
  }

  test("up to 1024 calls may wait by default", async (t) => {
    const { sign, operations } = guarded(t, { maxConcurrent: 1 });
    const aborting = new AbortController();
    const calls = Array.from({ length: 1025 }, () => verdict(sign(message, aborting.signal)));
    assert.equal(await verdict(sign(message)), "ERR_SIGNER_BUSY");
    assert.equal(operations.length, 1);
    aborting.abort();
    assert.deepEqual(new Set(await Promise.all(calls)), new Set(["ERR_SIGNER_ABORTED"]));
  });
});

describe("the deadline", () => {
  test("is 5 s by default, to the millisecond", async (t) => {
    const { sign, clock, operations } = guarded(t);
    const call = sign(message);
    const outcome = verdict(call);
    await clock.advance(4_999);
    assert.equal(operations[0]?.input.signal?.aborted, false);
    await clock.advance(1);
    assert.equal(await outcome, "ERR_SIGNER_TIMEOUT");
    await assert.rejects(call, { retryable: true, message: /^kid "a": no signature within 5000 ms/ });
    assert.equal(operations[0]?.input.signal?.aborted, true);
  });

  for (const [name, finish] of Object.entries({
    succeeds: ({ end }: Operation) => end(good),
    "returns something else": ({ end }: Operation) => end("late"),
    fails: ({ fail }: Operation) => fail(new Error("late")),
  })) {
    test(`a hung backend receives no further work until its operation ${name}`, async (t) => {
      const { sign, clock, operations } = guarded(t, { maxConcurrent: 1, timeoutMs: 1_000 });
      const hanging = verdict(sign(message));
      await clock.advance(1_000);
      assert.equal(await hanging, "ERR_SIGNER_TIMEOUT");
      const next = sign(message);
      await clock.advance(900);
      assert.equal(operations.length, 1);
      finish(operations[0] as Operation);
      await settled();
      assert.equal(operations.length, 2);
      end(operations[1]);
      assert.ok(verifies(await next));
    });
  }
});

describe("a caller that aborts", () => {
  const rejection = { code: "ERR_SIGNER_ABORTED", retryable: false, message: /^kid "a"/ };

  test("before the call: the signer is not called", async (t) => {
    const { sign, operations } = guarded(t);
    await assert.rejects(sign(message, AbortSignal.abort()), rejection);
    assert.equal(operations.length, 0);
  });

  test("while it waits: the signer is not called, and the other calls move up", async (t) => {
    const { sign, operations } = guarded(t, { maxConcurrent: 1, maxQueued: 2 });
    const aborting = new AbortController();
    const calls = [1, 2, 3].map((call) => {
      const signal = call === 2 ? aborting.signal : undefined;
      return verdict(sign(Uint8Array.from([call]), signal));
    });
    await settled();
    aborting.abort();
    assert.equal(await calls[1], "ERR_SIGNER_ABORTED");
    const fourth = verdict(sign(Uint8Array.from([4])));
    for (const index of [0, 1, 2]) {
      await settled();
      end(operations[index]);
    }
    assert.deepEqual(await Promise.all([...calls.slice(2), fourth]), Array(2).fill("ERR_SIGNER_BAD_SIGNATURE"));
    assert.deepEqual(
      operations.map(({ input }) => input.message[0]),
      [1, 3, 4],
    );
  });

  test("while its operation is in flight: the operation's signal aborts, and the operation keeps its slot until it ends", async (t) => {
    const { sign, operations } = guarded(t, { maxConcurrent: 1 });
    const aborting = new AbortController();
    const aborted = sign(message, aborting.signal);
    const next = sign(message);
    await settled();
    aborting.abort(new Error("the caller's reason"));
    await assert.rejects(aborted, rejection);
    assert.equal(operations[0]?.input.signal?.aborted, true);
    assert.equal(operations.length, 1);
    operations[0]?.fail(new DOMException("aborted", "AbortError"));
    await settled();
    end(operations[1]);
    await next;
  });

  test("after its call has left the queue and its operation is in flight: the calls behind it are not blocked", async (t) => {
    const { sign, operations } = guarded(t, { maxConcurrent: 1 });
    const aborting = new AbortController();
    const first = sign(message);
    const second = verdict(sign(message, aborting.signal));
    const third = sign(message);
    await settled();
    end(operations[0]);
    await first;
    await settled();
    aborting.abort();
    assert.equal(await second, "ERR_SIGNER_ABORTED");
    end(operations[1]);
    await settled();
    end(operations[2]);
    assert.ok(verifies(await third));
  });

  test("after its signature: nothing happens, and no listener remains on its signal", async (t) => {
    const { sign, clock, operations } = guarded(t, { maxConcurrent: 1, maxQueued: 1, timeoutMs: 1_000 });
    const aborting = new AbortController();
    const first = sign(message, aborting.signal);
    const second = verdict(sign(message, aborting.signal));
    const busy = verdict(sign(message, aborting.signal));
    await settled();
    end(operations[0]);
    assert.ok(verifies(await first));
    await clock.advance(1_000);
    assert.deepEqual([await second, await busy], ["ERR_SIGNER_TIMEOUT", "ERR_SIGNER_BUSY"]);
    assert.deepEqual(getEventListeners(aborting.signal, "abort"), []);
    aborting.abort();
    await settled();
    end(operations[1]);
  });
});

describe("limits are checked", () => {
  const rows: [limits: SignerLimits, ok: boolean][] = [
    [{}, true],
    [{ maxConcurrent: 1, maxQueued: 0, timeoutMs: 1 }, true],
    [{ maxConcurrent: undefined, maxQueued: undefined, timeoutMs: undefined }, true],
    [{ timeoutMs: 2 ** 31 - 1 }, true],
    [{ timeoutMs: 2 ** 31 }, false],
    [{ maxConcurrent: 0 }, false],
    [{ timeoutMs: 0 }, false],
  ];
  for (const [limits, ok] of rows) {
    test(`${inspect(limits, { breakLength: Infinity })} ${ok ? "is accepted" : "is rejected"}`, () => {
      if (ok) around(() => good, limits);
      else assert.throws(() => around(() => good, limits), { name: "ConfigError", code: "ERR_OPTION_INVALID" });
    });
  }
});
