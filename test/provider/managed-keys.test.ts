// A provider that follows a key manager: a real one, over a store in memory.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { decodeProtectedHeader } from "jose";
import { type ProviderOptions, createProvider, localSigner, withJWKSRotationActive } from "../../src/index.ts";
import { createKeyManager } from "../../src/rotation/manager/index.ts";
import { memoryStore } from "../../src/rotation/store/index.ts";
import { issuer, longCache, shortCache } from "../manager/world.ts";
import { ecKey, withoutPrivate } from "../support/keys.ts";
import { newWrappingKey } from "../support/managed.ts";
import { refusal } from "../support/refusal.ts";

const start = () => createKeyManager({ issuer, store: memoryStore(), wrappingKeys: [newWrappingKey()] });

const keyset = [{ kid: "a", signer: await localSigner(ecKey("a")) }];

describe("what managed keys bring", () => {
  const twice: ProviderOptions = {
    keyset,
    encryptionKeyset: [{ kid: "e", publicKey: withoutPrivate(ecKey("e")) }],
    jwksRotationActive: () => true,
    maxTokenLifetimeSeconds: 60,
    permit: () => () => {},
    retiredKid: () => undefined,
  };

  test("is refused when it is given beside them, in any order, and named; null is not given", async () => {
    const keys = await start();
    for (const [name, value] of Object.entries(twice)) {
      for (const options of [[{ keys, [name]: value }], [{ keys }, { [name]: value }], [{ [name]: value }, { keys }]]) {
        const { message } = await refusal(() => createProvider(...options), "ERR_OPTION_INVALID");
        assert.ok(message.includes(`"${name}"`), message);
      }
      assert.equal((await createProvider({ keys, [name]: null })).issuer, issuer, name);
    }
    await refusal(() => createProvider({ keys }, withJWKSRotationActive(null)), "ERR_OPTION_INVALID");
    await keys.close();
  });

  test("is their issuer: the same one may be given, another one may not", async () => {
    const keys = await start();
    for (const given of [undefined, null, issuer])
      assert.equal((await createProvider({ keys, issuer: given })).issuer, issuer);
    const another = { keys, issuer: "https://another.example" };
    const { message } = await refusal(() => createProvider(another), "ERR_OPTION_INVALID");
    assert.ok(message.includes(issuer), message);
    await keys.close();
  });

  test("is a manager, not its options or a promise of it", async () => {
    const manager = await start();
    for (const keys of [Promise.resolve(manager), { issuer, keyset }, "manager", [keyset]] as never[])
      await refusal(() => createProvider({ keys }), "ERR_OPTION_INVALID");
    await manager.close();
  });
});

test("providers follow each change: keys, mode, signing, longest lifetime, and how a key ended", async () => {
  const keys = await start();
  const ended: unknown[] = [];
  const onEvent: ProviderOptions["onEvent"] = (event) => {
    if (event.type === "retired-kid-presented") ended.push([event.kid, event.end]);
  };
  const [one, two] = [await createProvider({ keys, onEvent }), await createProvider({ keys, mountPrefix: "/two" })];
  const check = async (kids: readonly string[], cacheControl: string): Promise<string> => {
    for (const provider of [one, two]) {
      const response = await provider.fetch(new Request(provider.jwksUri));
      const jwkSet = (await response.json()) as { keys: { kid: string }[] };
      assert.deepEqual(
        jwkSet.keys.map(({ kid }) => kid),
        kids,
      );
      assert.equal(response.headers.get("cache-control"), cacheControl);
    }
    const token = await one.sign({ sub: "a", aud: "b" }, { lifetimeSeconds: 60 });
    assert.equal(decodeProtectedHeader(token).kid, kids[0]);
    return token;
  };
  const kids = (): string[] => keys.records.map(({ kid }) => kid);

  const [a = ""] = kids();
  const token = await check([a], longCache);
  await keys.rotate();
  const [, b = ""] = kids();
  await check([a, b], shortCache);
  await keys.activate(b, { force: true });
  await check([b, a], shortCache);
  await two.verify(token, { audience: "b" });
  await keys.revoke(a);
  await check([b], longCache);
  await refusal(() => one.verify(token, { audience: "b" }), "ERR_TOKEN_KID_UNKNOWN");
  assert.deepEqual(ended, [[a, "revoked"]]);

  const tooLong = { lifetimeSeconds: keys.maxTokenLifetimeSeconds + 1 };
  await refusal(() => one.sign({ sub: "a", aud: "b" }, tooLong), "ERR_CLAIMS_INVALID");
  await keys.close();
  // A manager that is closed reads its store no more.
  await assert.rejects(one.sign({ sub: "a", aud: "b" }, { lifetimeSeconds: 60 }));
});
