import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { after, before, describe, test } from "node:test";
import * as jose from "jose";
import type { Bytes } from "../../src/base/bytes.ts";
import type { JwksdErrorCode, JwksdError } from "../../src/index.ts";
import { boundSigner } from "../../src/keys/signer/bounded-signer.ts";
import type { ExternalSigner, SignerBackend } from "../../src/keys/signer/signer.ts";
import { defineSignerTests, expectFailure as failingWith, inputOf } from "../../src/testing/signer-tests.ts";
import { type SimulatedClock, settled, simulatedClock } from "../support/simulated.ts";
import { soak } from "../support/soak.ts";
import type { ServiceKey } from "../support/stubs/ecdsa.ts";
import type { Fault, StubServer } from "../support/stubs/stub-server.ts";

/** A signer whose key service is a stub. */
export interface Opened {
  readonly stub: StubServer;
  readonly signer: ExternalSigner;
  /** Strings that must not occur in any error. */
  readonly secrets: readonly string[];
  /** Key as the service stores it. */
  readonly key: ServiceKey | undefined;
}

/** A fault, the error's code, and a part of its message. */
export type Failing = readonly [name: string, fault: Fault, code: JwksdErrorCode, message: RegExp];

export const flipped = (signature: Buffer): Buffer => signature.fill((signature[40] ?? 0) ^ 1, 40, 41);

export const input = inputOf("header.claims");

/** {@link failingWith} for the input of these tests. */
export const failing = (
  attempt: () => Promise<unknown>,
  code: JwksdErrorCode,
  secrets: readonly string[] = [],
): Promise<JwksdError> => failingWith(attempt(), code, secrets, input);

type Backend = Pick<SignerBackend, "open" | "destroy">;

/** Tests that a URI that does not name a key is refused without a request, and that the error shows the right form. */
export function checkWrongUris(
  backend: () => Backend,
  uris: readonly string[],
  form: RegExp,
  secrets: readonly string[] = [],
): void {
  for (const uri of uris) {
    test(`${uri} does not name a key`, async () => {
      const error = await failing(() => backend().open(uri), "ERR_SIGNER_URI", secrets);
      assert.match(error.message, form);
      await failing(() => backend().destroy(uri), "ERR_SIGNER_URI", secrets);
    });
  }
}

/** Checks that keys that cannot sign are refused with a code and message, without a request to sign. @param absent URI of a missing key */
export async function checkCannotSign<Key>(
  stub: StubServer & { readonly add: (key: Key) => string },
  backend: Backend,
  rows: readonly (readonly [key: Key, code: JwksdErrorCode, message: RegExp])[],
  absent: string,
  secrets: readonly string[],
): Promise<void> {
  for (const [key, code, message] of rows) {
    const uri = stub.add(key);
    const error = await failing(() => backend.open(uri), code, secrets);
    assert.match(error.message, message);
    assert.ok(error.message.startsWith(uri), error.message);
  }
  await failing(() => backend.open(absent), "ERR_SIGNER_KEY_STATE", secrets);
  assert.equal(stub.seen.get("sign"), undefined);
  assert.deepEqual(stub.refused, []);
}

/**
 * Tests the signer contract, the failures that every key service can have, and failures of one service: each has its code, and the signer
 * works again as soon as its service does.
 */
export function checkKeyService(
  name: string,
  open: (clock?: SimulatedClock) => Promise<Opened>,
  failuresOf: (opened: Opened) => readonly Failing[],
  attempts: number,
): void {
  defineSignerTests(
    `${name}, against a stub`,
    async () => {
      const { stub, signer, secrets, key } = await open();
      const close = async (): Promise<void> => {
        await signer.close();
        await stub.close();
      };
      const all = [...secrets, key?.privateScalar ?? ""];
      return { signer, secrets: all, key, hold: () => stub.hold("sign"), close };
    },
    { signatures: soak(1_000) },
  );

  describe(`failures of ${name}`, async () => {
    const clock = simulatedClock();
    const opened = await open(clock);
    const { stub, signer, secrets } = opened;
    const publicKey = (await jose.importJWK(signer.publicKey as jose.JWK, "ES256")) as jose.CryptoKey;
    const guarded = boundSigner(signer, publicKey, "this key", {}, clock);
    before(() => assert.equal(clock.timers, 0, "a timer remains"));
    after(() => stub.close());

    const commonFailures: Failing[] = [
      ["each connection is cut", "cut", "ERR_SIGNER_UNAVAILABLE", /is unreachable/],
      ["each response is cut off", "cut in the middle", "ERR_SIGNER_UNAVAILABLE", /unreachable or has failed/],
      ["each response is a 500", { status: 500 }, "ERR_SIGNER_UNAVAILABLE", /unreachable or has failed/],
      ["each response is a 503", { status: 503 }, "ERR_SIGNER_UNAVAILABLE", /unreachable or has failed/],
    ];
    for (const [name, fault, code, message] of [...commonFailures, ...failuresOf(opened)]) {
      test(`${name}: ${code}`, async () => {
        stub.fail("sign", fault, attempts);
        const signing = failing(() => guarded(input.message), code, secrets);
        const error = await signing.finally(stub.recover);
        assert.match(error.message, message);
        assert.equal(clock.timers, 0, "a timer remains");
      });
    }

    test("a signature is retried after one broken connection", async () => {
      await signer.sign(input);
      stub.fail("sign", "cut");
      assert.equal((await signer.sign(input)).length, 64);
    });

    test("the digest is signed as passed, even if its bytes change later", async () => {
      const digest = Uint8Array.from(input.digest);
      const signing = signer.sign({ ...input, digest });
      digest.fill(0);
      const ecdsa = { name: "ECDSA", hash: "SHA-256" };
      const signature = Uint8Array.from(await signing);
      assert.ok(await crypto.subtle.verify(ecdsa, publicKey, signature, input.message));
    });

    test("an invalid digest is not sent", async () => {
      const before = stub.seen.get("sign");
      for (const digest of [input.digest.subarray(1), new Uint8Array(33), "digest", undefined] as Bytes[]) {
        await failing(() => signer.sign({ ...input, digest }), "ERR_OPTION_INVALID");
      }
      assert.equal(stub.seen.get("sign"), before);
    });

    test("no listener remains on the caller's signal", async () => {
      const { signal } = new AbortController();
      await signer.sign({ ...input, signal });
      assert.deepEqual(getEventListeners(signal, "abort"), []);
    });

    for (const fault of ["silent", "stalled"] as const)
      test(`a service that is ${fault} causes ERR_SIGNER_TIMEOUT at the deadline, not before`, async () => {
        stub.fail("sign", fault);
        const signing = failing(() => signer.sign(input), "ERR_SIGNER_TIMEOUT", secrets);
        await stub.silence();
        await clock.advance(4999);
        assert.equal(clock.timers, 1);
        await clock.advance(1);
        const error = await signing;
        assert.match(error.message, /within 5000 ms/);
      });

    test("a caller's abort causes ERR_SIGNER_ABORTED immediately", async () => {
      stub.fail("sign", "silent");
      const caller = new AbortController();
      const signing = failing(() => signer.sign({ ...input, signal: caller.signal }), "ERR_SIGNER_ABORTED", secrets);
      await stub.silence();
      caller.abort(new Error("the caller's reason"));
      await signing;
      assert.equal(clock.timers, 0, "a timer remains");
    });

    test("nothing is sent if the caller has already aborted", async () => {
      const before = stub.seen.get("sign");
      await failing(() => signer.sign({ ...input, signal: AbortSignal.abort() }), "ERR_SIGNER_ABORTED", secrets);
      assert.equal(stub.seen.get("sign"), before);
    });

    test("the key signs after all failures, and the service refused no request", async () => {
      assert.equal((await guarded(input.message)).length, 64);
      assert.deepEqual(stub.refused, []);
    });

    test("closing waits for signatures in flight; after that, nothing is signed", async () => {
      stub.fail("sign", "silent");
      const signing = failing(() => signer.sign(input), "ERR_SIGNER_TIMEOUT", secrets);
      await stub.silence();
      let isClosed = false;
      const closing = signer.close().then(() => (isClosed = true));
      await settled();
      assert.equal(isClosed, false);
      await clock.advance(5000);
      await signing;
      await closing;
      assert.match((await failing(() => signer.sign(input), "ERR_SIGNER_UNAVAILABLE")).message, /closed/);
      await signer.close();
    });
  });
}
