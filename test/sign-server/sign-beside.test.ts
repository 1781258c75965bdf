import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import type { Worker } from "node:worker_threads";
import type { CryptoKey } from "jose";
import { verify } from "../../src/keys/crypto/node.ts";
import { signBeside } from "../../src/service/signing/sign-beside.ts";

const beside = import.meta.resolve("../../src/service/signing/sign-beside.ts");

const pairOf = async (extractable = true): Promise<{ privateKey: CryptoKey; publicKey: CryptoKey }> =>
  crypto.subtle.generateKey({ name: "ECDSA", namedCurve: "P-256" }, extractable, ["sign", "verify"]);

test("each of many signatures at once is by its key and of its message, before the thread runs and after", async () => {
  const pairs = [await pairOf(), await pairOf(), await pairOf(false)];
  for (let round = 0; round < 20; round += 1) {
    await Promise.all(
      Array.from({ length: 30 }, async (_, index) => {
        // Several in a row, because one alone is not sent to the thread.
        const { privateKey, publicKey } = pairs[Math.floor(index / 5) % 3] as (typeof pairs)[0];
        // Every byte, in every length: what a thread gets is no text.
        const message = Uint8Array.from({ length: 250 + index }, (_, at) => at + round);
        const signature = await signBeside(privateKey, message.subarray(3));
        assert.equal(signature.length, 64);
        assert.ok(await verify(publicKey, "ES256", message.subarray(3), signature));
      }),
    );
  }
});

test("when the thread ends, what it was given is signed all the same, and what comes after", async () => {
  const { privateKey, publicKey } = await pairOf();
  const message = new Uint8Array(200);
  const signMany = (): Promise<boolean[]> =>
    Promise.all(
      Array.from({ length: 40 }, async () =>
        verify(publicKey, "ES256", message, await again.signBeside(privateKey, message)),
      ),
    );
  // A module of its own starts a thread of its own.
  const again = (await import(`${beside}?again`)) as { signBeside: typeof signBeside };
  const started = once(process, "worker");
  await signMany();
  const [thread] = (await started) as [Worker];
  await once(thread, "online");
  const underWay = signMany();
  await Promise.all([thread.terminate(), underWay]);
  assert.deepEqual(new Set([...(await underWay), ...(await signMany())]), new Set([true]));
});
