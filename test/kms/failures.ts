import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { after, before, describe, test } from "node:test";
import * as jose from "jose";
import type { Bytes } from "../../src/base/bytes.ts";
import type { ErrorCode, JwksdError } from "../../src/index.ts";
import { boundSigner } from "../../src/keys/signer/bounded.ts";
import type { ExternalSigner, SignerBackend } from "../../src/keys/signer/signer.ts";
import { checkSigner, failing as failingWith, inputOf } from "../../src/testing/signer.ts";
import { type SimulatedClock, settled, simulatedClock } from "../support/simulated.ts";
import { soak } from "../support/soak.ts";
import type { ServiceKey } from "../support/stubs/ecdsa.ts";
import type { Fault, StubServer } from "../support/stubs/stub-server.ts";

/** A signer whose key service is a stub. */
export interface Opened {
  readonly stub: StubServer;
  readonly signer: ExternalSigner;
  /** Texts that no error may hold. */
  readonly secrets: readonly string[];
  /** As the service has it. */
  readonly key: ServiceKey | undefined;
}

/** What goes wrong, the code of the error, and a word of its message. */
export type Failing = readonly [name: string, fault: Fault, code: ErrorCode, says: RegExp];

export const flipped = (signature: Buffer): Buffer => signature.fill((signature[40] ?? 0) ^ 1, 40, 41);

export const input = inputOf("header.claims");

/** {@link failingWith} for the one input of these tests. */
export const failing = (
  attempt: () => Promise<unknown>,
  code: ErrorCode,
  secrets: readonly string[] = [],
): Promise<JwksdError> => failingWith(attempt(), code, secrets, input);

type Backend = Pick<SignerBackend, "open" | "destroy">;

/** URIs that name no key are refused before anything is asked, by the form that they should have. */
export function checkWrongUris(
  backend: () => Backend,
  uris: readonly string[],
  form: RegExp,
  secrets: readonly string[] = [],
): void {
  for (const uri of uris) {
    test(`${uri} names no key`, async () => {
      const error = await failing(() => backend().open(uri), "ERR_SIGNER_URI", secrets);
      assert.match(error.message, form);
      await failing(() => backend().destroy(uri), "ERR_SIGNER_URI", secrets);
    });
  }
}

/** Keys that cannot sign, the codes and words by which they are refused, and a URI that names none: none of them was asked to sign. */
export async function checkCannotSign<Key>(
  stub: StubServer & { readonly add: (key: Key) => string },
  backend: Backend,
  rows: readonly (readonly [key: Key, code: ErrorCode, says: RegExp])[],
  absent: string,
  secrets: readonly string[],
): Promise<void> {
  for (const [key, code, says] of rows) {
    const uri = stub.add(key);
    const error = await failing(() => backend.open(uri), code, secrets);
    assert.match(error.message, says);
    assert.ok(error.message.startsWith(uri), error.message);
  }
  await failing(() => backend.open(absent), "ERR_SIGNER_KEY_STATE", secrets);
  assert.equal(stub.seen.get("sign"), undefined);
  assert.deepEqual(stub.refused, []);
}

/**
 * The contract of signers, the failures that every key service has, and those of one: each has its code, and the signer works again as
 * soon as its service does.
 */
export function checkKeyService(
  name: string,
  open: (clock?: SimulatedClock) => Promise<Opened>,
  ofService: (opened: Opened) => readonly Failing[],
  attempts: number,
): void {
  checkSigner(
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
    before(() => assert.equal(clock.timers, 0, "a timer is left"));
    after(() => stub.close());

    const ofAll: Failing[] = [
      ["each connection is cut", "cut", "ERR_SIGNER_UNAVAILABLE", /cannot be reached/],
      ["each answer is cut in its middle", "cut in the middle", "ERR_SIGNER_UNAVAILABLE", /be reached or failed/],
      ["each answer is a 500", { status: 500 }, "ERR_SIGNER_UNAVAILABLE", /cannot be reached or failed/],
      ["each answer is a 503", { status: 503 }, "ERR_SIGNER_UNAVAILABLE", /cannot be reached or failed/],
    ];
    for (const [what, fault, code, says] of [...ofAll, ...ofService(opened)]) {
      test(`${what}: ${code}`, async () => {
        stub.fail("sign", fault, attempts);
        const signing = failing(() => guarded(input.message), code, secrets);
        const error = await signing.finally(stub.recover);
        assert.match(error.message, says);
        assert.equal(clock.timers, 0, "a timer is left");
      });
    }

    test("one connection that is cut costs a retry", async () => {
      await signer.sign(input);
      stub.fail("sign", "cut");
      assert.equal((await signer.sign(input)).length, 64);
    });

    test("the digest is signed that was handed over, whatever becomes of its bytes", async () => {
      const digest = Uint8Array.from(input.digest);
      const signing = signer.sign({ ...input, digest });
      digest.fill(0);
      const ecdsa = { name: "ECDSA", hash: "SHA-256" };
      const signature = Uint8Array.from(await signing);
      assert.ok(await crypto.subtle.verify(ecdsa, publicKey, signature, input.message));
    });

    test("what is no digest is not sent", async () => {
      const before = stub.seen.get("sign");
      for (const digest of [input.digest.subarray(1), new Uint8Array(33), "digest", undefined] as Bytes[]) {
        await failing(() => signer.sign({ ...input, digest }), "ERR_OPTION_INVALID");
      }
      assert.equal(stub.seen.get("sign"), before);
    });

    test("a signal that lives on is let go", async () => {
      const { signal } = new AbortController();
      await signer.sign({ ...input, signal });
      assert.deepEqual(getEventListeners(signal, "abort"), []);
    });

    for (const fault of ["silent", "stalled"] as const)
      test(`a service that is ${fault}: ERR_SIGNER_TIMEOUT at the deadline, not before`, async () => {
        stub.fail("sign", fault);
        const signing = failing(() => signer.sign(input), "ERR_SIGNER_TIMEOUT", secrets);
        await stub.silence();
        await clock.advance(4999);
        assert.equal(clock.timers, 1);
        await clock.advance(1);
        const error = await signing;
        assert.match(error.message, /within 5000 ms/);
      });

    test("a caller that aborts: ERR_SIGNER_ABORTED at once", async () => {
      stub.fail("sign", "silent");
      const caller = new AbortController();
      const signing = failing(() => signer.sign({ ...input, signal: caller.signal }), "ERR_SIGNER_ABORTED", secrets);
      await stub.silence();
      caller.abort(new Error("a reason of its own"));
      await signing;
      assert.equal(clock.timers, 0, "a timer is left");
    });

    test("a caller that has aborted before: nothing is sent", async () => {
      const before = stub.seen.get("sign");
      await failing(() => signer.sign({ ...input, signal: AbortSignal.abort() }), "ERR_SIGNER_ABORTED", secrets);
      assert.equal(stub.seen.get("sign"), before);
    });

    test("after all of it the key signs, and the service had nothing to refuse", async () => {
      assert.equal((await guarded(input.message)).length, 64);
      assert.deepEqual(stub.refused, []);
    });

    test("closing waits for what is under way, then nothing is signed any more", async () => {
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
