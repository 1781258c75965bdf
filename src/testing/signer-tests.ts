import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { after, before, describe, test } from "node:test";
import { inspect } from "node:util";
import type { CryptoKey, JWK } from "jose";
import { compactVerify } from "jose/jws/compact/verify";
import { importJWK } from "jose/key/import";
import { type JwksdErrorCode, JwksdError, invalidOption } from "../base/errors.ts";
import { type Rules, checkOptions, object, wholeNumber } from "../base/options.ts";
import type { SignInput, Signer } from "../keys/signer/signer.ts";
import { checkCall } from "./suite-arguments.ts";

/** A signer to test. */
export interface SignerUnderTest {
  readonly signer: Signer;
  /** Strings that no error may contain, such as key material, PINs and credentials. */
  readonly secrets: readonly string[];
  /**
   * Makes the backend hold back its signatures until the returned function is called. Only for signers that can be
   * closed.
   */
  readonly hold?: () => () => void;
  /** For a simulated backend: the half (`r` or `s`) that must begin with a zero byte in all further signatures. */
  readonly key?: { zeroHalf?: "r" | "s" | undefined } | undefined;
  /** Closes and removes everything. */
  readonly close?: () => Promise<void>;
}

/** Options for `defineSignerTests`. */
export interface CheckSignerOptions {
  /**
   * Number of signatures to create with 64 in flight. Before that, a fifth as many are created one at a time. If the
   * number is 100 or more, up to 6,000 additional signatures are created to find one whose r begins with a zero byte
   * and one whose s does. Each kind occurs once in 256 signatures. Default: 100.
   */
  readonly signatures?: number;
}

const rules: Rules<CheckSignerOptions> = { signatures: wholeNumber(1, 1_000_000) };

/**
 * Maximum number of signatures to create when searching for one with a leading zero. One in every 256 signatures has a
 * leading zero, so with this limit, only one run in 10^10 does not find one.
 */
const maxSignatures = 6_000;

const encoder = new TextEncoder();
const base64url = (data: string | Uint8Array): string => Buffer.from(data as string).toString("base64url");

export function inputOf(message: string): SignInput {
  const bytes = encoder.encode(message);
  return { message: bytes, digest: createHash("sha256").update(bytes).digest() };
}

const retryable = new Set(["ERR_SIGNER_BUSY", "ERR_SIGNER_THROTTLED", "ERR_SIGNER_UNAVAILABLE", "ERR_SIGNER_TIMEOUT"]);

/**
 * Returns the error from an attempt. Asserts that it is a `JwksdError` with this code and contains neither a secret nor
 * the digest of `input`.
 */
export async function expectFailure(
  attempt: Promise<unknown>,
  code: JwksdErrorCode,
  secrets: readonly string[],
  input: SignInput,
): Promise<JwksdError> {
  const error = await attempt.then(
    () => assert.fail(`the attempt succeeded, but ${code} was expected`),
    (thrown: unknown) => thrown,
  );
  assert.ok(error instanceof JwksdError, `expected ${code}, not ${inspect(error)}`);
  assert.equal(error.code, code, error.message);
  assert.equal(error.retryable, retryable.has(code));
  const text = inspect(error, { depth: Infinity, showHidden: true }) + JSON.stringify(error);
  const digest = Buffer.from(input.digest);
  const forms = [...secrets, digest.toString("base64"), digest.toString("hex"), digest.toString("base64url")];
  for (const secret of forms) assert.ok(!text.includes(secret), `a secret in: ${text}`);
  return error;
}

/**
 * Defines the tests that every signer must pass, using `node:test`. Calls `open` once.
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`
 * @see Signer; RFC 7518 section 3.4
 */
export function defineSignerTests(
  name: string,
  open: () => Promise<SignerUnderTest>,
  options: CheckSignerOptions = {},
): void {
  checkCall("defineSignerTests", name, open);
  const { signatures = 100 } = checkOptions(options, rules);
  describe(`a signer: ${name}`, () => {
    let opened: SignerUnderTest;
    let publicKey: CryptoKey;
    let publicJwk: string;
    let signed = 0;
    /** The halves of a signature (r and s) that have been seen with a leading zero. */
    const zeros = new Set<string>();

    before(async () => {
      opened = await open();
      if (!object.holds(opened) || typeof opened.signer?.sign !== "function" || !Array.isArray(opened.secrets))
        throw invalidOption("the function that opens a signer must return { signer, secrets }");
      publicJwk = JSON.stringify(opened.signer.publicKey);
      publicKey = (await importJWK(JSON.parse(publicJwk) as JWK, "ES256")) as CryptoKey;
    });
    after(() => opened.close?.());

    /** Signs a new JWS. If `isWanted` accepts the signature, verifies it as a relying party would. */
    async function sign(isWanted: (signature: Uint8Array) => boolean = () => true): Promise<Uint8Array> {
      signed += 1;
      const input = `${base64url('{"alg":"ES256"}')}.${base64url(`${name} ${signed}`)}`;
      const signature = await opened.signer.sign(inputOf(input));
      assert.ok(signature instanceof Uint8Array);
      assert.equal(signature.length, 64);
      if (!isWanted(signature)) return signature;
      await compactVerify(`${input}.${base64url(signature)}`, publicKey, { algorithms: ["ES256"] });
      if (signature[0] === 0) zeros.add("r");
      if (signature[32] === 0) zeros.add("s");
      return signature;
    }

    test("its public key is a P-256 JWK without a private member", () => {
      const jwk = JSON.parse(publicJwk) as Record<string, unknown>;
      assert.deepEqual([jwk["kty"], jwk["crv"]], ["EC", "P-256"]);
      for (const member of ["x", "y"]) {
        assert.match(String(jwk[member]), /^[\w-]{43}$/);
        assert.equal(Buffer.from(String(jwk[member]), "base64url").length, 32);
      }
      const allowed = new Set(["kty", "crv", "x", "y", "kid", "alg", "use", "key_ops"]);
      assert.deepEqual(
        Object.keys(jwk).filter((member) => !allowed.has(member)),
        [],
      );
    });

    const rounds = [
      [1, Math.ceil(signatures / 5)],
      [64, signatures],
    ] as const;
    for (const [inFlight, count] of rounds) {
      test(`creates ${count} signatures of 64 bytes that jose verifies, with ${inFlight} in flight`, async () => {
        const last = signed + count;
        const one = async (): Promise<void> => {
          while (signed < last) await sign();
        };
        await Promise.all(Array.from({ length: inFlight }, one));
      });
    }

    for (const half of signatures >= 100 ? (["r", "s"] as const) : []) {
      test(`keeps a leading zero in ${half}`, async () => {
        const { key } = opened;
        if (key !== undefined) key.zeroHalf = half;
        const concurrency = key === undefined ? 16 : 1;
        const hasZero = (signature: Uint8Array): boolean => signature[half === "r" ? 0 : 32] === 0;
        for (let attempts = 0; !zeros.has(half) && attempts < maxSignatures; attempts += concurrency) {
          await Promise.all(Array.from({ length: concurrency }, () => sign(hasZero)));
        }
        if (key !== undefined) key.zeroHalf = undefined;
        assert.ok(zeros.has(half), `no leading zero in ${signed} signatures`);
      });
    }

    test("signs messages of any length without changing them", async () => {
      for (const length of [0, 1, 31, 32, 33, 64, 16_384]) {
        const message = new Uint8Array(length).fill(7);
        const before = message.slice();
        const digest = createHash("sha256").update(message).digest();
        const signature = await opened.signer.sign({ message, digest });
        const ecdsa = { name: "ECDSA", hash: "SHA-256" };
        assert.ok(await crypto.subtle.verify(ecdsa, publicKey, Uint8Array.from(signature), message), `${length} bytes`);
        assert.deepEqual(message, before);
      }
    });

    test("signs only the given part of a larger buffer", async () => {
      const whole = encoder.encode("before.header.claims.after");
      const message = whole.subarray(7, 20);
      const digest = new Uint8Array(64).fill(1);
      digest.set(createHash("sha256").update(message).digest(), 16);
      const signature = await opened.signer.sign({ message, digest: digest.subarray(16, 48) });
      const ecdsa = { name: "ECDSA", hash: "SHA-256" };
      assert.ok(await crypto.subtle.verify(ecdsa, publicKey, Uint8Array.from(signature), message.slice()));
    });

    // A backend reads either the message or the digest, so it may sign even if the other one is invalid. But it must
    // sign the right bytes.
    const valid = inputOf("header.claims");
    const wrong: [name: string, input: unknown][] = [
      ["nothing", undefined],
      ["no members", {}],
      ["a null message and a null digest", { message: null, digest: null }],
      ["strings", { message: "header.claims", digest: "digest" }],
      ["numbers", { message: 7, digest: 7 }],
      ["a digest that is too short", { ...valid, digest: valid.digest.subarray(1) }],
      ["a digest that is too long", { ...valid, digest: Uint8Array.from([...valid.digest, 0]) }],
      ["no digest", { message: valid.message }],
      ["no message", { digest: valid.digest }],
      ["an aborted signal", { ...valid, signal: AbortSignal.abort() }],
    ];
    for (const [what, input] of wrong) {
      test(`given invalid input (${what}), signs the message or throws an error that contains no secret`, async () => {
        const result = await (async () => opened.signer.sign(input as SignInput))().catch((error: unknown) => ({
          error,
        }));
        if (result instanceof Uint8Array) {
          const ecdsa = { name: "ECDSA", hash: "SHA-256" };
          assert.ok(
            await crypto.subtle.verify(ecdsa, publicKey, Uint8Array.from(result), encoder.encode("header.claims")),
          );
          return;
        }
        const text = inspect(result.error, { depth: 9, showHidden: true });
        for (const secret of opened.secrets) assert.ok(!text.includes(secret), "a secret in an error");
        // The signer must keep working.
        await sign();
      });
    }

    test("the signer's visible members contain no secret", () => {
      const text = inspect(opened.signer, { depth: 9, showHidden: true }) + JSON.stringify(opened.signer);
      for (const secret of opened.secrets) assert.ok(!text.includes(secret));
    });

    test("the caller cannot change the signer's public key", async () => {
      assert.equal(JSON.stringify(opened.signer.publicKey), publicJwk);
      Reflect.set(opened.signer.publicKey, "x", "changed");
      Reflect.set(opened.signer.publicKey, "d", "added");
      assert.equal(JSON.stringify(opened.signer.publicKey), publicJwk);
      await sign();
    });

    test("close() finishes the signatures in flight and rejects later ones", async () => {
      const { signer, hold, secrets } = opened;
      const release = hold?.();
      const signatures = Array.from({ length: 8 }, () => sign());
      let isClosed = false;
      const closed = signer.close?.().then(() => (isClosed = true));
      for (let turn = 0; turn < 3; turn += 1) await new Promise(setImmediate);
      if (release !== undefined) assert.equal(isClosed, false);
      release?.();
      await Promise.all(signatures);
      // A signer that holds no resources has nothing to close.
      if (closed !== undefined) {
        await closed;
        const input = inputOf("header.claims");
        await expectFailure(signer.sign(input), "ERR_SIGNER_UNAVAILABLE", secrets, input);
        await signer.close?.();
      }
    });
  });
}
