// Whose keys a store holds, and how one that was made without an issuer comes to one.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import {
  type Owner,
  type IssuerCheck,
  commandedBy,
  servedBy,
  movedBy,
} from "../../src/rotation/custody/issuer-check.ts";
import { manageKeys } from "../../src/rotation/manager/manager.ts";
import { createCustody, type Custody } from "../../src/rotation/custody/custody.ts";
import { readWrappingKeys } from "../../src/rotation/custody/wrapping.ts";
import { memoryStore } from "../../src/rotation/store/memory.ts";
import type { Register } from "../../src/rotation/store/register.ts";
import { accessTo, documentOf } from "../support/managed.ts";
import { World } from "./world.ts";

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
      /of issuer "https:\/\/a\.example", and this is issuer "https:\/\/b\.example"; go on with the issuer https:\/\/a\.example, or use another store/,
    ],
    ["serve without an issuer, a new store", servedBy(here), undefined, here],
    ["serve without an issuer, those of no issuer yet", servedBy(here), there, there],
    [
      "serve without an issuer, those of one",
      servedBy(here),
      a,
      /no issuer is set; jwksd serve --issuer https:\/\/a\.example goes on/,
    ],
    ["a command, a new store", commandedBy(a), undefined, a],
    ["a command, its own", commandedBy(a), a, a],
    ["a command, another's", commandedBy(b), a, /go on with the issuer https:\/\/a\.example/],
    [
      "a command, those of no issuer yet",
      commandedBy(a),
      here,
      /of no issuer yet \(last served as "http:\/\/127\.0\.0\.1:9900"\).*jwksd serve --issuer https:\/\/a\.example, or jwksd keys rewrap --issuer https:\/\/a\.example/,
    ],
    ["a command with the issuer of the discovery document", commandedBy(hereChosen), here, here],
    ["a command without an issuer, those of one", commandedBy(here), a, a],
    ["a command without an issuer, those of no issuer yet", commandedBy(here), there, there],
    ["rewrap, those of no issuer yet", movedBy(a), here, a],
    ["rewrap, another's", movedBy(b), a, /go on with/],
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
async function serving(world: World, store: Register, owner: Owner) {
  const custody = createCustody({
    register: store,
    keys: await readWrappingKeys([world.wrappingKey]),
    issuerCheck: servedBy(owner),
  });
  const manager = await manageKeys(custody, { clock: world.clock });
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
    await first.manager.noteIssuer(here.issuer);
    assert.deepEqual((await found(world, store)).owner, here);
    const { revision } = await documentOf(store);
    await first.manager.noteIssuer(here.issuer);
    assert.equal((await documentOf(store)).revision, revision, "what is known already is not written");
    for (const use of ["enc", "sig"] as const) {
      await first.manager.execute({ type: "announce", key: await first.manager.makeKey(use) });
    }
    const kids = first.manager.records.map(({ kid }) => kid);

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
    const replica = await world.start({ store, issuer: a.issuer });
    assert.equal(replica.manager.records[1]?.state, "active");
    assert.ok(!replica.told.some(({ type }) => type === "held-back"));
    await world.stop(replica);
  });

  test("and has its keys in a token only: takes the issuer all the same", async () => {
    const world = new World();
    const store = memoryStore({ clock: world.clock });
    const { manager, custody } = await serving(world, store, here);
    await accessTo(custody).change(async ({ document: { records } }) => ({
      records: records.map((record) => Object.assign({}, record, { privateHalf: { uri: "module:a" } })),
    }));
    await manager.close();
    const replica = await world.start({
      store,
      issuer: a.issuer,
      signs: false,
      openSigner: () => Promise.reject(new Error("it is out")),
    });
    assert.deepEqual((await found(world, store)).owner, a);
    await world.stop(replica);
  });
});
