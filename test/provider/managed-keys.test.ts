import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { decodeProtectedHeader } from "jose";
import {
  type ProviderOptions,
  createProvider,
  localSigner,
  withJWKSRotationActive,
  type Provider,
  type ProviderEvent,
  type ProviderUpdate,
} from "../../src/index.ts";
import type { KeySubscriber } from "../../src/provider/managed-keys.ts";
import { createKeyManager } from "../../src/rotation/index.ts";
import { memoryStore } from "../../src/rotation/store/index.ts";
import { createBearerGuard } from "../../src/verify/bearer/index.ts";
import { issuer, longCache, shortCache, World } from "../manager/world.ts";
import { day, hour, minute } from "../rules/key-records.ts";
import { keySource } from "../support/key-source.ts";
import { ecKey, withoutPrivate } from "../support/keys.ts";
import { newWrappingKey } from "../support/managed.ts";
import { refusal } from "../support/refusal.ts";
import { samplesOf } from "../support/scrape.ts";
import { simulatedClock } from "../support/simulated.ts";
import { soak } from "../support/soak.ts";
import { compact, noSignature, verdict } from "../token/compact.ts";

// A provider that follows a key manager: a real one, over an in-memory store.

const start = () => createKeyManager({ issuer, store: memoryStore(), wrappingKeys: [newWrappingKey()] });

const keyset = [{ kid: "a", signer: await localSigner(ecKey("a")) }];

test("a guard that uses an on-demand provider's keys returns 503 until they can be read, and 401 for an unknown kid", async () => {
  const clock = simulatedClock();
  const store = memoryStore({ clock });
  const shared = { issuer, store, wrappingKeys: [newWrappingKey()], clock };
  const provider = await createProvider({ keys: await createKeyManager({ ...shared, onDemand: true }), clock });
  const bearer = createBearerGuard({ issuer: { issuer, keys: provider.keys }, audience: "api", clock });
  const other = await createProvider({ issuer, keyset, clock });
  const answerTo = async ({ sign }: Provider) => {
    const claims = { sub: "alice", aud: "api", client_id: "app" };
    const token = await sign(claims, { typ: "at+jwt", lifetimeSeconds: 60 });
    const request = new Request("https://api.example", { headers: { Authorization: `Bearer ${token}` } });
    const auth = await bearer.check(request);
    return auth instanceof Response ? auth.status : auth.claims.sub;
  };
  assert.equal(await answerTo(other), 503);
  await (await createKeyManager({ ...shared, requireStore: false })).close();
  await clock.advance(minute);
  assert.equal(await answerTo(provider), "alice");
  assert.equal(await answerTo(other), 401);
});

describe("options given together with managed keys", () => {
  const twice: ProviderOptions = {
    keyset,
    jwksRotationActive: () => true,
    maxTokenLifetimeSeconds: 60,
  };

  test("are rejected with an error that names them if managed keys replace them, whatever their order, unless they are null", async () => {
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

  test("may include the manager's issuer, but not a different one", async () => {
    const keys = await start();
    for (const given of [undefined, null, issuer])
      assert.equal((await createProvider({ keys, issuer: given })).issuer, issuer);
    const another = { keys, issuer: "https://another.example" };
    const { message } = await refusal(() => createProvider(another), "ERR_OPTION_INVALID");
    assert.ok(message.includes(issuer), message);
    await keys.close();
  });

  test("the keys option must be a manager, not a manager's options or a promise", async () => {
    const manager = await start();
    for (const keys of [Promise.resolve(manager), { issuer, keyset }, "manager", [keyset]] as never[])
      await refusal(() => createProvider({ keys }), "ERR_OPTION_INVALID");
    await manager.close();
  });
});

test("providers reflect every change to the keys, the mode, the signing key and the longest lifetime, as well as the end of each key's life", async () => {
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
  // A closed manager no longer reads its store.
  await assert.rejects(one.sign({ sub: "a", aud: "b" }, { lifetimeSeconds: 60 }));
});

const entry = async (kid: string) => ({ kid, signer: await localSigner(ecKey(kid)) });
const named = (kid: string): string => compact({ alg: "ES256", kid }, {}, noSignature);
const check = ({ verify }: Provider, token: string): Promise<string> => verdict(verify(token, { audience: "api" }));

/** Returns a listener and a function that returns its new events. */
function listening() {
  const events: ProviderEvent[] = [];
  return {
    onEvent: (event: ProviderEvent): void => void events.push(event),
    newEvents: () => events.splice(0).filter(({ type }) => type === "retired-kid-presented"),
  };
}
const counts = (provider: Provider): Record<string, number> =>
  Object.fromEntries(
    Object.entries(samplesOf(provider.metrics())).filter(([name]) =>
      name.startsWith("jwksd_retired_kids_presented_total{"),
    ),
  );

const own = (kid: string) => ({ kid, publicKey: withoutPrivate(ecKey(kid)), alg: "ECDH-ES" as const });
const kidsOf = async (provider: Provider): Promise<string[]> =>
  (await provider.jwkSet()).keys.map(({ kid, use }) => `${kid} ${use}`);

describe("encryption keys in addition to managed keys", () => {
  test("are published after the manager's keys, no matter what changes", async () => {
    const keys = await start();
    await keys.rotate({ use: "enc", now: true });
    const kids = (use: "sig" | "enc"): string[] =>
      keys.records.filter((record) => record.use === use).map(({ kid }) => `${kid} ${use}`);
    const provider = await createProvider({ keys, encryptionKeyset: [own("e")] });
    assert.deepEqual(await kidsOf(provider), [...kids("sig"), ...kids("enc"), "e enc"]);
    await keys.rotate();
    assert.deepEqual(await kidsOf(provider), [...kids("sig"), ...kids("enc"), "e enc"]);
    assert.equal(kids("sig").length, 2);
    await provider.update({ encryptionKeyset: [own("f"), own("g")] });
    assert.deepEqual(await kidsOf(provider), [...kids("sig"), ...kids("enc"), "f enc", "g enc"]);
    await keys.rotate({ use: "enc", now: true });
    assert.deepEqual((await kidsOf(provider)).slice(-2), ["f enc", "g enc"]);
    await provider.update({ encryptionKeyset: [] });
    assert.deepEqual(
      (await kidsOf(provider)).filter((kid) => /^[fg] /.test(kid)),
      [],
    );
    await keys.close();
  });

  test("that clash with the manager's keys are rejected, and the set does not change", async () => {
    const keys = await start();
    const kid = keys.records[0]?.kid ?? "";
    const twin = { ...own("e"), kid };
    await refusal(() => createProvider({ keys, encryptionKeyset: [twin] }), "ERR_KID_DUPLICATE");
    const provider = await createProvider({ keys, encryptionKeyset: [own("e")] });
    await refusal(() => provider.update({ encryptionKeyset: [twin] }), "ERR_KID_DUPLICATE");
    assert.deepEqual(await kidsOf(provider), [`${kid} sig`, "e enc"]);
    await keys.close();
  });

  test("are published once an on-demand manager has read the managed keys", async () => {
    const store = memoryStore();
    const wrappingKeys = [newWrappingKey()];
    await (await createKeyManager({ issuer, store, wrappingKeys })).close();
    const keys = await createKeyManager({ issuer, store, wrappingKeys, onDemand: true });
    const provider = await createProvider({ keys, encryptionKeyset: [own("e")] });
    await provider.update({ encryptionKeyset: [own("f")] });
    const kid = (await provider.jwkSet()).keys[0]?.kid;
    assert.deepEqual(await kidsOf(provider), [`${kid} sig`, "f enc"]);
  });

  test("an update cannot replace the manager's signing keys", async () => {
    const keys = await start();
    const provider = await createProvider({ keys });
    const { message } = await refusal(() => provider.update({ keyset }), "ERR_OPTION_INVALID");
    assert.match(message, /"keyset"/);
    await keys.close();
  });

  test("take effect together with a simultaneous change by the manager, whichever finishes first", async () => {
    const [a, b] = [await entry("a"), await entry("b")];
    for (const isOnDemand of [false, true]) {
      let subscriber: KeySubscriber | undefined;
      const keys = keySource(issuer, [a], {
        subscribe: async (given) => {
          subscriber = given;
          await given.update({ keyset: [a], encryptionKeyset: [] }, { isRotating: false });
        },
        onDemand: isOnDemand ? { fresh: () => undefined, ask: async () => {} } : undefined,
      });
      const provider = await createProvider({ keys });
      const rounds = Array.from({ length: 20 }, async (_, round) => {
        const keysets = { keyset: round % 2 === 0 ? [b] : [b, a], encryptionKeyset: [] };
        const managed = subscriber?.update(keysets, { isRotating: false });
        await provider.update({ encryptionKeyset: [own(`e${round}`)] });
        await managed;
      });
      await Promise.all(rounds);
      // A CryptoKey takes longer to check than the JWK after it.
      const algorithm = { name: "ECDH", namedCurve: "P-256" };
      const { publicKey } = await crypto.subtle.generateKey(algorithm, false, ["deriveBits"]);
      const slow = { kid: "slow", publicKey };
      await Promise.all([slow, own("last")].map((entry) => provider.update({ encryptionKeyset: [entry] })));
      assert.deepEqual(await kidsOf(provider), ["b sig", "a sig", "last enc"], `on demand: ${isOnDemand}`);
    }
  });
});

describe("rejects and reports a token whose key is no longer published", () => {
  test("without a manager, if an update removed the key", async () => {
    const { onEvent, newEvents } = listening();
    const provider = await createProvider({ issuer, keyset: [await entry("a"), await entry("b")], onEvent });
    await provider.update({ keyset: [await entry("b"), await entry("c")] });
    for (const kid of ["a", "b", "c", "never there", "__proto__"]) await check(provider, named(kid));
    assert.deepEqual(newEvents(), [{ type: "retired-kid-presented", kid: "a", end: "removed" }]);
    assert.equal(await check(provider, named("a")), "ERR_TOKEN_KID_UNKNOWN");
    assert.deepEqual(counts(provider), { 'jwksd_retired_kids_presented_total{end="removed"}': 2 });
    newEvents();
    await provider.update({ keyset: [await entry("a")] });
    await check(provider, named("a"));
    await check(provider, named("c"));
    assert.deepEqual(
      newEvents(),
      [{ type: "retired-kid-presented", kid: "c", end: "removed" }],
      "a key that is published again",
    );
  });

  test("with a manager, if the key is any of the manager's former keys, even after a restart", async () => {
    const world = new World();
    const replica = await world.start();
    const [removed = ""] = replica.manager.records.map(({ kid }) => kid);
    await world.passTo(4 * day + 14 * hour);
    const revoked = replica.manager.records.find(({ state }) => state === "active")?.kid ?? "";
    const replacement = await replica.manager.makeKey("sig");
    await world.run(replica, { type: "revoke", kid: revoked, replacement });
    await world.stop(replica);

    const { manager } = await world.start();
    const { onEvent, newEvents } = listening();
    const provider = await createProvider({ keys: manager }, { clock: world.clock, onEvent });
    const live = manager.records.filter(({ state }) => state === "active").map(({ kid }) => kid);
    for (const kid of [removed, revoked, ...live, "never there"]) await check(provider, named(kid));
    assert.deepEqual(newEvents(), [
      { type: "retired-kid-presented", kid: removed, end: "removed" },
      { type: "retired-kid-presented", kid: revoked, end: "revoked" },
    ]);
    assert.deepEqual(counts(provider), {
      'jwksd_retired_kids_presented_total{end="removed"}': 1,
      'jwksd_retired_kids_presented_total{end="revoked"}': 1,
    });
  });

  test("but not if the header is rejected first because of its alg or a missing kid", async () => {
    const { onEvent, newEvents } = listening();
    const provider = await createProvider({ issuer, keyset: [await entry("a")], onEvent });
    await provider.update({ keyset: [await entry("b")] });
    for (const header of [{ alg: "none", kid: "a" }, { alg: "HS256", kid: "a" }, { alg: "ES256" }])
      await check(provider, compact(header, {}, noSignature));
    assert.deepEqual(newEvents(), []);
  });

  test("and remembers only the most recently removed kids", async () => {
    const { onEvent, newEvents } = listening();
    const provider = await createProvider({ issuer, keyset: [await entry("a")], onEvent });
    const { signer } = await entry("a");
    for (let round = 0; round < 1_001; round += 1) await provider.update({ keyset: [{ kid: `kid ${round}`, signer }] });
    for (const kid of ["a", "kid 0", "kid 999"]) await check(provider, named(kid));
    assert.deepEqual(
      newEvents().map((event) => "kid" in event && event.kid),
      ["kid 0", "kid 999"],
    );
  });
});

const kids = ["a", "b", "c", "d", "e", "f"];
const signers = new Map(await Promise.all(kids.map(async (kid) => [kid, await localSigner(ecKey(kid))] as const)));

/** An update, as kids; each kid has one key, whichever keyset the kid is in. */
interface Change {
  readonly signing: readonly string[] | undefined;
  readonly encryption: readonly string[] | undefined;
  /** A flaw in the last key. */
  readonly flaw: "none" | "no kid" | "no key" | "wrong curve";
}

type Model = Readonly<Required<Record<"signing" | "encryption", readonly string[]>>>;

const change: fc.Arbitrary<Change> = fc.record({
  signing: fc.option(fc.array(fc.constantFrom(...kids), { maxLength: 3 }), { nil: undefined }),
  encryption: fc.option(fc.array(fc.constantFrom(...kids), { maxLength: 2 }), { nil: undefined }),
  flaw: fc.constantFrom("none", "none", "none", "no kid", "no key", "wrong curve"),
});

const flaws = {
  none: [],
  "no kid": [{ signer: signers.get("a") }],
  "no key": [{ kid: "x" }],
  "wrong curve": [{ kid: "x", signer: { publicKey: withoutPrivate(ecKey("x", "P-384")), sign: () => {} } }],
};

function toUpdate({ signing, encryption, flaw }: Change): ProviderUpdate {
  const keyset = signing?.map((kid) => ({ kid, signer: signers.get(kid) }));
  const encryptionKeyset = encryption?.map((kid) => ({ kid, publicKey: withoutPrivate(ecKey(kid)) }));
  return { keyset: keyset && [...keyset, ...flaws[flaw]], encryptionKeyset } as ProviderUpdate;
}

/** Returns the keys after a change: the new ones if the change is valid, or the previous ones. */
function next(model: Model, { signing, encryption, flaw }: Change): Model {
  const wanted = { signing: signing ?? model.signing, encryption: encryption ?? model.encryption };
  const all = [...wanted.signing, ...wanted.encryption];
  const broken = signing !== undefined && flaw !== "none";
  return broken || wanted.signing.length === 0 || new Set(all).size < all.length ? model : wanted;
}

async function servedKids({ fetch, jwksUri }: Provider): Promise<Model> {
  const { keys } = (await (await fetch(new Request(jwksUri))).json()) as { keys: { kid: string; use: string }[] };
  const of = (use: string): string[] => keys.filter((key) => key.use === use).map(({ kid }) => kid);
  return { signing: of("sig"), encryption: of("enc") };
}

const initial: Model = { signing: ["a"], encryption: [] };
const provide = (): Promise<Provider> =>
  createProvider({ issuer: "https://op.example" }, toUpdate({ ...initial, flaw: "none" }));
const changes = fc.array(change, { maxLength: 8 });

test("serves the last valid keys after any sequence of updates, sequential or concurrent", async () => {
  await fc.assert(
    fc.asyncProperty(changes, async (sequence) => {
      const hurried = await provide();
      await Promise.allSettled(sequence.map((step) => hurried.update(toUpdate(step))));
      assert.deepEqual(await servedKids(hurried), sequence.reduce(next, initial));
      const provider = await provide();
      let model = initial;
      for (const step of sequence) {
        const wanted = next(model, step);
        const accepted = await provider.update(toUpdate(step)).then(
          () => true,
          () => false,
        );
        // An update without effect is accepted as well.
        assert.ok(accepted || wanted === model, "a valid update was refused");
        model = wanted;
        assert.deepEqual(await servedKids(provider), model);
      }
    }),
    { numRuns: soak(100, 12) },
  );
});
