import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { FlattenedSign, type JWSHeaderParameters, decodeProtectedHeader } from "jose";
import type { StoreError } from "../../src/base/errors.ts";
import { createCustody, type Custody } from "../../src/rotation/custody/custody.ts";
import { type StoreDocument, emptyDocument, nextDocument, parseDocument } from "../../src/rotation/custody/document.ts";
import {
  type Owner,
  type IssuerCheck,
  commandedBy,
  ownedBy,
  servedBy,
  movedBy,
} from "../../src/rotation/custody/issuer-check.ts";
import { newWrappingKey, readWrappingKeys } from "../../src/rotation/custody/key-wrapping.ts";
import { sealed, unsealed, verifySeal } from "../../src/rotation/custody/mac.ts";
import { type ManageOptions, manageKeys } from "../../src/rotation/manager/manager.ts";
import type { KeyManagerEvent } from "../../src/rotation/manager/types.ts";
import { applyCommand } from "../../src/rotation/rules/commands.ts";
import { activeKey, announcedKey, liveRecords } from "../../src/rotation/rules/key-records.ts";
import { rotationPolicy } from "../../src/rotation/rules/policy.ts";
import { memoryStore } from "../../src/rotation/store/memory.ts";
import type { Register } from "../../src/rotation/store/register.ts";
import { day, second, start, tombstone } from "../rules/key-records.ts";
import { custodyOf, documentOf, accessTo } from "../support/managed.ts";
import { WrittenStore } from "../support/written-store.ts";
import { Module } from "./module.ts";
import { World, seen, writtenWorld } from "./world.ts";

// The stored document: its format, its limits, and the documents that are refused.

const keys = await readWrappingKeys([newWrappingKey()]);
const owner = { issuer: "https://op.example", isChosen: true };
const empty = emptyDocument(owner, rotationPolicy());
const code = (code: StoreError["code"], message = /./) => ({ name: "StoreError", code, message });

/** Rewrites members of the stored document under a valid MAC. */
async function rewritten(
  world: World,
  store: WrittenStore,
  change: (document: StoreDocument) => object,
): Promise<void> {
  const custody = await world.custody();
  const document = await custody.open(store.text);
  store.put(await custody.seal({ ...document, ...change(document) }));
}

describe("compatibility with later versions", () => {
  test("keeps unknown members at every level in a commit", async () => {
    const { world, store } = writtenWorld();
    const replica = await world.start();
    const later = { later: { deep: [1] } };
    await rewritten(world, store, ({ records, policy, owner }) => ({
      ...later,
      policy: { ...policy, ...later },
      owner: { ...owner, ...later },
      records: records.map((record) => ({ ...record, ...later })),
      targets: [{ name: "a", revision: 1, at: 1, ...later }],
      commits: ["a commit of a later version"],
    }));
    await world.stop(replica);
    const next = await world.start();
    await world.until(next.manager.rotate({ now: true }));
    await world.run(next, { type: "policy", policy: { rotateEveryDays: 60 } });
    const { records, policy, targets, ...rest } = (await world.document()) as StoreDocument & typeof later;
    const found = [rest, policy, records[0], targets[0]] as (typeof later)[];
    assert.deepEqual(
      found.map(({ later }) => later),
      found.map(() => later.later),
    );
    assert.equal(policy.rotateEveryDays, 60);
    await assert.rejects(world.run(next, { type: "policy", policy: later as object }), { code: "ERR_OPTION_UNKNOWN" });
    await world.stop(next);
  });

  test("rejects a different format and keeps using the records that it last read", async () => {
    const { world, store } = writtenWorld();
    const replica = await world.start();
    const [before, original] = [await seen(replica), store.text];
    await rewritten(world, store, () => ({ format: 3 }));
    await world.pass(second);
    const refused = code(
      "ERR_STORE_FORMAT",
      /has format 3, but this version of jwksd reads only formats 1 and 2; update jwksd$/,
    );
    assert.equal(replica.manager.health.failure?.code, refused.code);
    await assert.rejects(world.start(), refused);
    assert.deepEqual({ ...(await seen(replica)), cacheControl: "" }, { ...before, cacheControl: "" });
    store.put(original);
    await world.pass(31 * second);
    assert.equal(replica.events.at(-1)?.type, "recovered");
    await world.stop(replica);
  });

  test("a decommissioned issuer's document uses format 2, and the format must match the keys", async () => {
    const { world, store } = writtenWorld();
    const replica = await world.start();
    const { text } = store;
    await rewritten(world, store, () => ({ format: 2 }));
    await assert.rejects(world.start(), code("ERR_RECORDS_INVALID", /damaged/));
    store.put(text);
    await world.until(replica.manager.decommission());
    assert.equal((await world.document()).format, 2);
    await rewritten(world, store, () => ({ format: 1 }));
    await assert.rejects(world.start(), code("ERR_RECORDS_INVALID", /0 keys with use "sig" are active/));
    await world.stop(replica);
  });

  test("applies a stored policy even if this version would reject it", async () => {
    const { world, store } = writtenWorld();
    const replica = await world.start();
    await rewritten(world, store, ({ policy }) => ({ policy: { ...policy, announceForSeconds: 60 } }));
    await world.pass(second);
    assert.deepEqual([replica.manager.policy.announceForSeconds, replica.events.at(-1)?.type], [60, "changed"]);
    await world.stop(replica);
  });
});

describe("a document's size is limited", () => {
  test("it keeps the latest events with their numbers, and the ids of 32 commits", () => {
    let document = empty;
    const reason = "x".repeat(200);
    for (let index = 1; index <= 300; index += 1) {
      document = nextDocument(document, { events: [{ at: index, type: "policy", reason }] }, `commit ${index}`);
    }
    const { events, commits, revision } = document;
    assert.deepEqual(
      [events.at(-1)?.number, commits.length, commits[0], commits.at(-1), revision],
      [300, 32, "commit 269", "commit 300", 300],
    );
    assert.deepEqual(
      events.map(({ number }) => number),
      events.map((_, index) => 300 - events.length + 1 + index),
    );
    const bytes = Buffer.byteLength(JSON.stringify(events));
    assert.ok(bytes > 15_000 && bytes <= 16_384 + 2 * events.length, `${bytes}`);
  });

  test("a nearly full register is reported once, and old events are dropped to make room for a revocation", async () => {
    const maxBytes = 18_000;
    const world = new World((clock) => {
      const store = memoryStore({ clock });
      return {
        ...store,
        maxBytes,
        write: async (text, ...rest) => {
          assert.ok(Buffer.byteLength(text) <= maxBytes, "the document must fit");
          return store.write(text, ...rest);
        },
      };
    });
    const replica = await world.start();
    for (let count = 0; count < 30; count += 1) {
      const active = activeKey((await world.document()).records, "sig")?.kid ?? "";
      await world.until(replica.manager.revoke(active));
      await world.idle();
    }
    const reported = replica.events.filter(({ type }) => type === "store-nearly-full");
    assert.equal(reported.length, 1);
    const { records, events } = await world.document();
    const revoked = records.filter(({ state }) => state === "revoked").length;
    assert.deepEqual([revoked, replica.manager.health.store.filling?.maxBytes], [30, maxBytes]);
    assert.ok(Buffer.byteLength(JSON.stringify(events)) < 14_000, "fewer than 16 KiB allow");
    assert.equal(events.at(-1)?.type, "revoked");
    // The remaining space is reserved for revocations.
    const refused = {
      code: "ERR_STORE_FULL",
      message: /18,000 bytes\); copy the keys to a larger store with jwksd store migrate$/,
    };
    let rotations = 0;
    const rotate = async (): Promise<void> => {
      for (; rotations < 60; rotations += 1) {
        await world.until(replica.manager.rotate());
        const announced = announcedKey((await world.document()).records, "sig")?.kid ?? "";
        await world.until(replica.manager.revoke(announced));
      }
    };
    await assert.rejects(rotate(), refused);
    await world.until(replica.manager.revoke(activeKey((await world.document()).records, "sig")?.kid ?? ""));
    await world.stop(replica);
  });

  test("a tombstone keeps only the necessary members", async () => {
    const world = new World();
    const module = new Module();
    const replica = await world.start(module.choice());
    const [first = ""] = (await seen(replica)).kids;
    await world.until(replica.manager.rotate({ now: true }));
    await world.until(replica.manager.revoke(first));
    const [ended] = (await world.document()).records;
    const { uri, trustedUntil, thumbprint } = ended as unknown as Record<string, unknown>;
    assert.deepEqual(ended, {
      kid: first,
      use: "sig",
      state: "revoked",
      thumbprint: first,
      endedAt: world.clock.now(),
      uri: "module:key/1",
      retireForSeconds: 47_400,
      trustedUntil,
    });
    assert.deepEqual([uri, thumbprint], ["module:key/1", first]);
    await world.stop(replica);
  });

  test("steps are taken even with a thousand tombstones", async () => {
    const world = new World();
    const replica = await world.start();
    const ended = Array.from({ length: 1_000 }, (_, index) => tombstone(`kid of an ended key ${index}`, "removed"));
    await world.change(({ records }) => ({ records: [...ended, ...records] }));
    await world.until(replica.manager.rotate());
    await world.passTo(day);
    assert.equal((await seen(replica)).signs, replica.manager.records.at(-1)?.kid);
    const { text = "" } = await world.store.read();
    assert.ok(text.length < 250_000, `${text.length}`);
    await world.stop(replica);
  });
});

test("each event is numbered, and each state has the revision in which it began", () => {
  const { policy } = empty;
  const key = {
    kid: "a",
    use: "sig",
    alg: "ES256",
    thumbprint: "a",
    publicJwk: { kty: "EC", crv: "P-256", x: "x", y: "y" },
    privateHalf: { uri: "x:y" },
  } as const;
  const change = applyCommand([], { type: "announce", key }, { policy, now: start });
  const first = nextDocument({ ...empty, revision: 7 }, change, "one");
  assert.deepEqual(
    first.events.map(({ number, type }) => [number, type]),
    [
      [1, "announced"],
      [2, "activated"],
    ],
  );
  const second = nextDocument(first, {}, "two");
  assert.deepEqual([second.revision, liveRecords(second.records)[0]?.stateRevision], [9, 8]);
});

describe("a document that does not match its MAC is not authentic", () => {
  const document = JSON.stringify({ ...empty, revision: 1, commits: ["one"] });
  const isRefused = code("ERR_STORE_NOT_AUTHENTIC");

  test("whichever byte was changed", async () => {
    const text = await sealed(keys[0], document);
    assert.equal(await verifySeal(keys, text), keys[0].id);
    assert.equal(unsealed(text), document);
    const body = text.indexOf("\n") + 1;
    for (let at = body; at < text.length; at += 1) {
      const changed = `${text.slice(0, at)}${text[at] === "1" ? "2" : "1"}${text.slice(at + 1)}`;
      await assert.rejects(verifySeal(keys, changed), isRefused, `byte ${at}`);
    }
    for (const changed of [text.slice(0, -1), `${text} `, `\n${text}`, text.replace("\n", ""), document, "", "\n"]) {
      await assert.rejects(verifySeal(keys, changed), isRefused, changed);
    }
  });

  test("and is rejected before it is parsed", async () => {
    const store = new WrittenStore();
    const custody = await custodyOf(store, [newWrappingKey()], owner);
    const text = await custody.seal({ ...empty, revision: 1 });
    for (const changed of [text.slice(0, -1), text.replace('"format":1', '"format":2'), "garbage", "\n{}"]) {
      await assert.rejects(custody.open(changed), isRefused, changed);
    }
    assert.equal((await custody.open(text)).revision, 1);
    assert.equal((await documentOf(store)).revision, 0);
  });

  test("even if its MAC was made with the same key but a different typ", async () => {
    const text = await sealed(keys[0], document);
    const header = decodeProtectedHeader(text.split("\n")[0] ?? "") as JWSHeaderParameters;
    const made = async (typ: string): Promise<string> => {
      const { protected: header_, signature } = await new FlattenedSign(new TextEncoder().encode(document))
        .setProtectedHeader({ ...header, typ })
        .sign(keys[0].macKey);
      return `${header_}..${signature}\n${document}`;
    };
    assert.equal(await made("jwksd-store"), text);
    await assert.rejects(verifySeal(keys, await made("other")), isRefused);
  });
});

describe("content with a valid MAC that is not a document counts as damaged", () => {
  const valid = { ...empty, revision: 1, commits: ["one"] };
  const rows: Readonly<Record<string, object | string>> = {
    "not JSON": "{",
    null: "null",
    "no format": { ...valid, format: undefined },
    "a format that is not a number": { ...valid, format: "1" },
    "no revision": { ...valid, revision: undefined },
    "no records": { ...valid, records: undefined },
    "no commits": { ...valid, commits: null },
    "no owner": { ...valid, owner: undefined },
    "records of the wrong type": { ...valid, records: [null] },
    "a policy with values of the wrong type": { ...valid, policy: { ...valid.policy, rotateEveryDays: "90" } },
    "no active key": { ...valid, records: [tombstone("a", "removed")] },
  };
  for (const [name, document] of Object.entries(rows)) {
    test(name, () => {
      const text = typeof document === "string" ? document : JSON.stringify(document);
      assert.throws(() => parseDocument(text), code("ERR_RECORDS_INVALID"));
    });
  }
});

// The issuer of a store's keys, and the choice of an issuer for a store that was created without one.

const a: Owner = { issuer: "https://a.example", isChosen: true };
const b: Owner = { issuer: "https://b.example", isChosen: true };
const here: Owner = { issuer: "http://127.0.0.1:9900", isChosen: false };
const there: Owner = { issuer: "http://127.0.0.1:8080", isChosen: false };
const hereChosen: Owner = { ...here, isChosen: true };

describe("issuer checks", () => {
  const rows: readonly [name: string, rule: IssuerCheck, found: Owner | undefined, expected: Owner | RegExp][] = [
    ["serve, a new store", servedBy(a), undefined, a],
    ["serve, its own keys", servedBy(a), a, a],
    ["serve, keys without an issuer", servedBy(a), here, a],
    [
      "serve, another issuer's keys",
      servedBy(b),
      a,
      /belong to issuer "https:\/\/a\.example", but this process is configured for issuer "https:\/\/b\.example"; set the issuer to https:\/\/a\.example, or use a different store/,
    ],
    ["serve without an issuer, a new store", servedBy(here), undefined, here],
    ["serve without an issuer, keys without an issuer", servedBy(here), there, there],
    [
      "serve without an issuer, an issuer's keys",
      servedBy(here),
      a,
      /but no issuer is set; run jwksd serve --issuer https:\/\/a\.example$/,
    ],
    ["a program, a new store", ownedBy(a.issuer), undefined, a],
    ["a program, its own keys", ownedBy(a.issuer), a, a],
    ["a program, another issuer's keys", ownedBy(b.issuer), a, /set the issuer to https:\/\/a\.example/],
    [
      "a program, keys without an issuer",
      ownedBy(here.issuer),
      here,
      /; assign the store to that issuer with .* or jwksd keys rewrap --issuer http:\/\/127\.0\.0\.1:9900$/,
    ],
    ["a command, a new store", commandedBy(a), undefined, a],
    ["a command, its own keys", commandedBy(a), a, a],
    ["a command, another issuer's keys", commandedBy(b), a, /set the issuer to https:\/\/a\.example/],
    [
      "a command, keys without an issuer",
      commandedBy(a),
      here,
      /belong to no issuer yet \(they were last served as "http:\/\/127\.0\.0\.1:9900"\).*jwksd serve --issuer https:\/\/a\.example or jwksd keys rewrap --issuer https:\/\/a\.example/,
    ],
    ["a command with the issuer of the discovery document", commandedBy(hereChosen), here, here],
    ["a command without an issuer, an issuer's keys", commandedBy(here), a, a],
    ["a command without an issuer, keys without an issuer", commandedBy(here), there, there],
    ["rewrap, keys without an issuer", movedBy(a), here, a],
    ["rewrap, another issuer's keys", movedBy(b), a, /set the issuer to/],
    ["rewrap without an issuer, an issuer's keys", movedBy(here), a, a],
  ];
  for (const [name, rule, found, expected] of rows) {
    test(`${name}: ${expected instanceof RegExp ? "rejected" : "accepted"}`, () => {
      if (expected instanceof RegExp) assert.throws(() => rule(found), { code: "ERR_STORE_ISSUER", message: expected });
      else assert.deepEqual(rule(found), expected);
    });
  }
});

/** Starts a manager as `jwksd serve` does, for this issuer. */
async function serving(world: World, store: Register, owner: Owner, options: ManageOptions = {}) {
  const custody = createCustody({
    register: store,
    keys: await readWrappingKeys([world.wrappingKey]),
    issuerCheck: servedBy(owner),
  });
  const manager = await world.until(manageKeys(custody, { clock: world.clock, ...options }));
  return { custody, manager };
}

/** Opens the store as a command without an issuer does. */
async function found(world: World, store: Register): Promise<Custody> {
  const custody = createCustody({
    register: store,
    keys: await readWrappingKeys([world.wrappingKey]),
    issuerCheck: commandedBy(there),
  });
  await accessTo(custody).read();
  return custody;
}

describe("a store that was created without an issuer", () => {
  test("keeps its owner after a commit that does not change the records, because its private keys are bound to the owner", async () => {
    const world = new World();
    const store = memoryStore({ clock: world.clock });
    await (await serving(world, store, there)).manager.close();
    const custody = createCustody({
      register: store,
      keys: await readWrappingKeys([world.wrappingKey]),
      issuerCheck: servedBy(a),
    });
    await accessTo(custody).change(() => ({ targets: [{ name: "a", revision: 0, at: 1 }] }));
    assert.deepEqual((await documentOf(store)).owner, there);
    await (await serving(world, store, a)).manager.close();
    assert.deepEqual((await documentOf(store)).owner, a);
  });

  test("records the URL it was last served at and gives all its keys to the first issuer that is set", async () => {
    const world = new World();
    const store = memoryStore({ clock: world.clock });
    const first = await serving(world, store, there);
    await first.manager.recordIssuer(here.issuer);
    assert.deepEqual((await found(world, store)).owner, here);
    const { revision } = await documentOf(store);
    await first.manager.recordIssuer(here.issuer);
    assert.equal((await documentOf(store)).revision, revision, "a known URL is not written again");
    for (const [use, alg] of [["enc", "ECDH-ES"] as const, ["sig"] as const]) {
      await first.manager.execute({ type: "announce", key: await first.manager.makeKey(use, alg) });
    }
    const kids = first.manager.records.map(({ kid }) => kid);

    await assert.rejects(world.start({ store, issuer: a.issuer }), { code: "ERR_STORE_ISSUER" });
    await (await serving(world, store, a)).manager.close();
    const replica = await world.start({ store, issuer: a.issuer });
    assert.deepEqual(
      replica.manager.records.map(({ kid }) => kid),
      kids,
    );
    assert.deepEqual((await found(world, store)).owner, a);
    const events = (await documentOf(store)).events.filter(({ type }) => type === "rewrapped");
    assert.deepEqual(
      events.map(({ kid, reason }) => [kid, reason]),
      kids.map((kid) => [kid, 'the issuer "https://a.example" was chosen']),
    );
    await assert.rejects(world.start({ store, issuer: b.issuer }), { code: "ERR_STORE_ISSUER" });
    await assert.rejects(serving(world, store, here), { code: "ERR_STORE_ISSUER" });
    // A process that serves it without an issuer keeps its keys and cannot commit.
    await world.until(replica.manager.execute({ type: "rotate", use: "sig", now: true }));
    await assert.rejects(first.manager.execute({ type: "revoke", kid: kids[0] ?? "" }), { code: "ERR_STORE_ISSUER" });
    assert.equal(first.manager.records.find(({ state }) => state === "active")?.kid, kids[0]);
    await world.stop(replica);
    await world.stop(await world.start({ store, issuer: a.issuer }));
    await first.manager.close();
  });

  test("gets its issuer before a key that is due becomes active", async () => {
    const world = new World();
    const store = memoryStore({ clock: world.clock });
    const first = await serving(world, store, here);
    await first.manager.execute({ type: "announce", key: await first.manager.makeKey("sig") });
    await first.manager.close();
    await world.pass(86_400_000);
    const events: KeyManagerEvent[] = [];
    const { manager } = await serving(world, store, a, { onEvent: (event) => void events.push(event) });
    assert.equal(manager.records[1]?.state, "active");
    assert.ok(!events.some(({ type }) => type === "activation-blocked"));
    await manager.close();
  });

  test("gets its issuer even if all keys are in an unavailable HSM", async () => {
    const world = new World();
    const store = memoryStore({ clock: world.clock });
    const { manager, custody } = await serving(world, store, here);
    await accessTo(custody).change(async ({ document: { records } }) => ({
      records: records.map((record) => Object.assign({}, record, { privateHalf: { uri: "module:a" } })),
    }));
    await manager.close();
    const next = await serving(world, store, a, {
      signs: false,
      openSigner: () => Promise.reject(new Error("unavailable")),
    });
    assert.deepEqual((await found(world, store)).owner, a);
    await next.manager.close();
  });
});
