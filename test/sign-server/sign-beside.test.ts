import assert from "node:assert/strict";
import { test } from "node:test";
import type { CryptoKey } from "jose";
import { verify } from "../../src/crypto/node.ts";
import { signBeside } from "../../src/sign-server/sign-beside.ts";

const pairOf = async (extractable = true): Promise<{ privateKey: CryptoKey; publicKey: CryptoKey }> =>
  crypto.subtle.generateKey({ name: "ECDSA", namedCurve: "P-256" }, extractable, ["sign", "verify"]);

test("each of many signatures at once is by its key and of its message, before the thread runs and after", async () => {
  const pairs = [await pairOf(), await pairOf(), await pairOf(false)];
  for (let round = 0; round < 20; round += 1) {
    await Promise.all(
      Array.from({ length: 30 }, async (_, index) => {
        const { privateKey, publicKey } = pairs[index % 3] as (typeof pairs)[0];
        // Every byte, in every length: what a thread gets is no text.
        const message = Uint8Array.from({ length: 250 + index }, (_, at) => at + round);
        const signature = await signBeside(privateKey, message.subarray(3));
        assert.equal(signature.length, 64);
        assert.ok(await verify(publicKey, "ES256", message.subarray(3), signature));
      }),
    );
  }
});
