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
import { sealed, unsealed, verifySeal } from "../../src/rotation/custody/mac.ts";
import { newWrappingKey, readWrappingKeys } from "../../src/rotation/custody/wrapping.ts";
import { type ManageOptions, manageKeys } from "../../src/rotation/manager/manager.ts";
import type { ManagerEvent } from "../../src/rotation/manager/types.ts";
import { applyCommand } from "../../src/rotation/rules/commands.ts";
import { rotationPolicy } from "../../src/rotation/rules/policy.ts";
import { activeKey, announcedKey, liveRecords } from "../../src/rotation/rules/records.ts";
import { memoryStore } from "../../src/rotation/store/memory.ts";
import type { Register } from "../../src/rotation/store/register.ts";
import { day, second, start, tombstone } from "../rules/key-records.ts";
import { custodyOf, documentOf, accessTo } from "../support/managed.ts";
import { WrittenStore } from "../support/written-store.ts";
import { Module } from "./module.ts";
import { World, seen, writtenWorld } from "./world.ts";

// What a store holds as a text, and how a text is refused.

const keys = await readWrappingKeys([newWrappingKey()]);
const owner = { issuer: "https://op.example", isChosen: true };
const empty = emptyDocument(owner, rotationPolicy());
const code = (code: StoreError["code"], message = /./) => ({ name: "StoreError", code, message });

/** A document with this member, under the MAC of its store. */
async function rewritten(
  world: World,
  store: WrittenStore,
  change: (document: StoreDocument) => object,
): Promise<void> {
  const custody = await world.custody();
  const document = await custody.open(store.text);
  store.put(await custody.seal({ ...document, ...change(document) }));
}

describe("for later versions", () => {
  test("members that are not known are kept by a commit, at every place", async () => {
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

  test("another format is refused, and what was read stays in use", async () => {
    const { world, store } = writtenWorld();
    const replica = await world.start();
    const [before, good] = [await seen(replica), store.text];
    await rewritten(world, store, () => ({ format: 2 }));
    await world.pass(second);
    const refused = code(
      "ERR_STORE_FORMAT",
      /has format 2, but this version of jwksd reads only format 1; update jwksd$/,
    );
    assert.equal(replica.manager.health.failure?.code, refused.code);
    await assert.rejects(world.start(), refused);
    assert.deepEqual({ ...(await seen(replica)), cacheControl: "" }, { ...before, cacheControl: "" });
    store.put(good);
    await world.pass(31 * second);
    assert.equal(replica.told.at(-1)?.type, "recovered");
    await world.stop(replica);
  });

  test("a policy that this version would refuse is that of the store all the same", async () => {
    const { world, store } = writtenWorld();
    const replica = await world.start();
    await rewritten(world, store, ({ policy }) => ({ policy: { ...policy, announceForSeconds: 60 } }));
    await world.pass(second);
    assert.deepEqual([replica.manager.policy.announceForSeconds, replica.told.at(-1)?.type], [60, "changed"]);
    await world.stop(replica);
  });
});

describe("a document is bounded", () => {
  test("the newest events stay, and their numbers go on; 32 commits, of which each has an id", () => {
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

  test("where a register is nearly full, people are told once, and old events make room for a revocation", async () => {
    const maxBytes = 18_000;
    const world = new World((clock) => {
      const store = memoryStore({ clock });
      return {
        ...store,
        maxBytes,
        write: async (text, ...rest) => {
          assert.ok(Buffer.byteLength(text) <= maxBytes, "it would not fit");
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
    const told = replica.told.filter(({ type }) => type === "store-nearly-full");
    assert.equal(told.length, 1);
    const { records, events } = await world.document();
    const revoked = records.filter(({ state }) => state === "revoked").length;
    assert.deepEqual([revoked, replica.manager.health.store.filling?.maxBytes], [30, maxBytes]);
    assert.ok(Buffer.byteLength(JSON.stringify(events)) < 14_000, "less than what 16 KiB hold");
    assert.equal(events.at(-1)?.type, "revoked");
    // What is left is for revocations.
    const refused = { code: "ERR_STORE_FULL", message: /18,000 bytes\); copy the keys into .*: jwksd store migrate$/ };
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

  test("a tombstone holds what is needed and no more", async () => {
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
      trustedUntil,
    });
    assert.deepEqual([uri, thumbprint], ["module:key/1", first]);
    await world.stop(replica);
  });

  test("a thousand tombstones, and a step still works", async () => {
    const world = new World();
    const replica = await world.start();
    const ended = Array.from({ length: 1_000 }, (_, index) =>
      tombstone(`kid of a key that has ended ${index}`, "removed"),
    );
    await world.change(({ records }) => ({ records: [...ended, ...records] }));
    await world.until(replica.manager.rotate());
    await world.passTo(day);
    assert.equal((await seen(replica)).signs, replica.manager.records.at(-1)?.kid);
    const { text = "" } = await world.store.read();
    assert.ok(text.length < 250_000, `${text.length}`);
    await world.stop(replica);
  });
});

test("an event tells of a commit, and each state has the revision in which it began", () => {
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

describe("a text that is not the one under its MAC is not authentic", () => {
  const document = JSON.stringify({ ...empty, revision: 1, commits: ["one"] });
  const isRefused = code("ERR_STORE_NOT_AUTHENTIC");

  test("in whatever byte it was changed", async () => {
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

  test("and that is said before it is read: of a store as well", async () => {
    const store = new WrittenStore();
    const custody = await custodyOf(store, [newWrappingKey()], owner);
    const text = await custody.seal({ ...empty, revision: 1 });
    for (const changed of [text.slice(0, -1), text.replace('"format":1', '"format":2'), "garbage", "\n{}"]) {
      await assert.rejects(custody.open(changed), isRefused, changed);
    }
    assert.equal((await custody.open(text)).revision, 1);
    assert.equal((await documentOf(store)).revision, 0);
  });

  test("a MAC of another type under the same key is none", async () => {
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

describe("what is under the right MAC and is no document is damaged", () => {
  const good = { ...empty, revision: 1, commits: ["one"] };
  const rows: Readonly<Record<string, object | string>> = {
    "no JSON": "{",
    null: "null",
    "no format": { ...good, format: undefined },
    "a format that is no number": { ...good, format: "1" },
    "no revision": { ...good, revision: undefined },
    "no records": { ...good, records: undefined },
    "no commits": { ...good, commits: null },
    "no owner": { ...good, owner: undefined },
    "records of another type": { ...good, records: [null] },
    "a policy of other types": { ...good, policy: { ...good.policy, rotateEveryDays: "90" } },
    "no active key": { ...good, records: [tombstone("a", "removed")] },
  };
  for (const [name, document] of Object.entries(rows)) {
    test(name, () => {
      const text = typeof document === "string" ? document : JSON.stringify(document);
      assert.throws(() => parseDocument(text), code("ERR_RECORDS_INVALID"));
    });
  }
});

// Whose keys a store holds, and how one that was made without an issuer comes to one.

const a: Owner = { issuer: "https://a.example", isChosen: true };
const b: Owner = { issuer: "https://b.example", isChosen: true };
const here: Owner = { issuer: "http://127.0.0.1:9900", isChosen: false };
const there: Owner = { issuer: "http://127.0.0.1:8080", isChosen: false };
const hereChosen: Owner = { ...here, isChosen: true };

describe("whose keys they are to be", () => {
  const rows: readonly [name: string, rule: IssuerCheck, found: Owner | undefined, expected: Owner | RegExp][] = [
    ["serve, a new store", servedBy(a), undefined, a],
    ["serve, its own", servedBy(a), a, a],
    ["serve, those of no issuer yet", servedBy(a), here, a],
    [
      "serve, another's",
      servedBy(b),
      a,
      /belong to issuer "https:\/\/a\.example", but this is issuer "https:\/\/b\.example"; continue with issuer https:\/\/a\.example, or use another store/,
    ],
    ["serve without an issuer, a new store", servedBy(here), undefined, here],
    ["serve without an issuer, those of no issuer yet", servedBy(here), there, there],
    [
      "serve without an issuer, those of one",
      servedBy(here),
      a,
      /but no issuer is set; run jwksd serve --issuer https:\/\/a\.example$/,
    ],
    ["a program, a new store", ownedBy(a.issuer), undefined, a],
    ["a program, its own", ownedBy(a.issuer), a, a],
    ["a program, another's", ownedBy(b.issuer), a, /continue with issuer https:\/\/a\.example/],
    [
      "a program, those of no issuer yet",
      ownedBy(here.issuer),
      here,
      /; assign the store to it with .* or jwksd keys rewrap --issuer http:\/\/127\.0\.0\.1:9900$/,
    ],
    ["a command, a new store", commandedBy(a), undefined, a],
    ["a command, its own", commandedBy(a), a, a],
    ["a command, another's", commandedBy(b), a, /continue with issuer https:\/\/a\.example/],
    [
      "a command, those of no issuer yet",
      commandedBy(a),
      here,
      /belong to no issuer yet \(last served as "http:\/\/127\.0\.0\.1:9900"\).*jwksd serve --issuer https:\/\/a\.example or jwksd keys rewrap --issuer https:\/\/a\.example/,
    ],
    ["a command with the issuer of the discovery document", commandedBy(hereChosen), here, here],
    ["a command without an issuer, those of one", commandedBy(here), a, a],
    ["a command without an issuer, those of no issuer yet", commandedBy(here), there, there],
    ["rewrap, those of no issuer yet", movedBy(a), here, a],
    ["rewrap, another's", movedBy(b), a, /continue with issuer/],
    ["rewrap without an issuer, those of one", movedBy(here), a, a],
  ];
  for (const [name, rule, found, expected] of rows) {
    test(name, () => {
      if (expected instanceof RegExp) assert.throws(() => rule(found), { code: "ERR_STORE_ISSUER", message: expected });
      else assert.deepEqual(rule(found), expected);
    });
  }
});

/** A manager as `jwksd serve` has one, for this issuer. */
async function serving(world: World, store: Register, owner: Owner, options: ManageOptions = {}) {
  const custody = createCustody({
    register: store,
    keys: await readWrappingKeys([world.wrappingKey]),
    issuerCheck: servedBy(owner),
  });
  const manager = await world.until(manageKeys(custody, { clock: world.clock, ...options }));
  return { custody, manager };
}

/** What a command without an issuer finds. */
async function found(world: World, store: Register): Promise<Custody> {
  const custody = createCustody({
    register: store,
    keys: await readWrappingKeys([world.wrappingKey]),
    issuerCheck: commandedBy(there),
  });
  await accessTo(custody).read();
  return custody;
}

describe("a store that was made without an issuer", () => {
  test("remembers where it was last served, and takes the first issuer that is set, with all of its keys", async () => {
    const world = new World();
    const store = memoryStore({ clock: world.clock });
    const first = await serving(world, store, there);
    await first.manager.recordIssuer(here.issuer);
    assert.deepEqual((await found(world, store)).owner, here);
    const { revision } = await documentOf(store);
    await first.manager.recordIssuer(here.issuer);
    assert.equal((await documentOf(store)).revision, revision, "what is known already is not written");
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
    // Who serves it without an issuer goes on with the keys it has, and takes no part any more.
    await world.until(replica.manager.execute({ type: "rotate", use: "sig", now: true }));
    await assert.rejects(first.manager.execute({ type: "revoke", kid: kids[0] ?? "" }), { code: "ERR_STORE_ISSUER" });
    assert.equal(first.manager.records.find(({ state }) => state === "active")?.kid, kids[0]);
    await world.stop(replica);
    await world.stop(await world.start({ store, issuer: a.issuer }));
    await first.manager.close();
  });

  test("whose next key is due at that moment: it is taken first, and then signs", async () => {
    const world = new World();
    const store = memoryStore({ clock: world.clock });
    const first = await serving(world, store, here);
    await first.manager.execute({ type: "announce", key: await first.manager.makeKey("sig") });
    await first.manager.close();
    await world.pass(86_400_000);
    const told: ManagerEvent[] = [];
    const { manager } = await serving(world, store, a, { onEvent: (event) => void told.push(event) });
    assert.equal(manager.records[1]?.state, "active");
    assert.ok(!told.some(({ type }) => type === "activation-blocked"));
    await manager.close();
  });

  test("and has its keys in a token only: takes the issuer all the same", async () => {
    const world = new World();
    const store = memoryStore({ clock: world.clock });
    const { manager, custody } = await serving(world, store, here);
    await accessTo(custody).change(async ({ document: { records } }) => ({
      records: records.map((record) => Object.assign({}, record, { privateHalf: { uri: "module:a" } })),
    }));
    await manager.close();
    const next = await serving(world, store, a, {
      signs: false,
      openSigner: () => Promise.reject(new Error("it is out")),
    });
    assert.deepEqual((await found(world, store)).owner, a);
    await next.manager.close();
  });
});
