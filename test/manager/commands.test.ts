// Operator commands, as methods of a manager whose signing keys are generated in an HSM that counts them.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { describe, test } from "node:test";
import { type JwksdErrorCode, SignerError } from "../../src/base/errors.ts";
import { localSigner } from "../../src/keys/signer/local-signer.ts";
import type { ExternalSigner } from "../../src/keys/signer/signer.ts";
import type { KeyManager } from "../../src/rotation/manager/types.ts";
import { applyCommand } from "../../src/rotation/rules/commands.ts";
import { placeholderKey } from "../../src/rotation/rules/decommission.ts";
import { liveRecords } from "../../src/rotation/rules/key-records.ts";
import { day, hour, second } from "../rules/key-records.ts";
import { ecKey } from "../support/keys.ts";
import { accessTo, custodyOf } from "../support/managed.ts";
import { refusal } from "../support/refusal.ts";
import { eventually } from "../support/service.ts";
import { World, issuer, retireMs, seen, staleMs } from "./world.ts";

/** Keys that the HSM no longer has. */
const gone = new Set<string>();

const open = async (uri: string): Promise<ExternalSigner> => {
  if (gone.has(uri)) throw new SignerError("ERR_SIGNER_KEY_STATE", `${uri} is gone`);
  const signer = await localSigner(ecKey(uri));
  return { ...signer, uri, close: () => close() };
};

/** Closes a signer. A test may replace it. */
let close = async (): Promise<void> => {};

/** Starts a manager with the signing key `a`. The next keys are `b`, `c` and `d`, in the order in which they are generated. */
async function start() {
  const world = new World();
  const made: string[] = [];
  const createSigner = (): Promise<ExternalSigner> => {
    made.push("abcd"[made.length] ?? "?");
    return open(made.at(-1) ?? "");
  };
  const destroyed: string[] = [];
  const destroySigner = async (uri: string): Promise<void> => void destroyed.push(uri);
  const replica = await world.start({ createSigner, openSigner: open, destroySigner });
  const nameOf = (kid: string): string =>
    made[replica.manager.records.findIndex((record) => record.kid === kid)] ?? kid;
  /** Returns the states of the signing keys, the published keys, and the key that signs. */
  const now = async () => {
    const { kids, signs } = await seen(replica);
    const states = replica.manager.records.map(({ kid, state }) => `${nameOf(kid)} ${state}`);
    return { states, published: kids.map(nameOf).join(""), signs: nameOf(signs) };
  };
  return {
    world,
    replica,
    manager: replica.manager as KeyManager,
    made,
    destroyed,
    kidOf: (name: string): string => replica.manager.records[made.indexOf(name)]?.kid ?? assert.fail(),
    now,
  };
}

describe("a manager's methods", () => {
  test("rotate() announces a key, activate() or retire() replaces the active key with it, and remove() takes a key out of the set", async () => {
    const { world, manager, kidOf, now, replica } = await start();
    const { events } = await world.until(manager.rotate());
    assert.deepEqual(
      events.map(({ type, kid }) => [type, kid]),
      [["announced", kidOf("b")]],
    );
    assert.deepEqual(await now(), { states: ["a active", "b announced"], published: "ab", signs: "a" });
    await world.until(manager.activate(kidOf("b"), { force: true }));
    assert.deepEqual(await now(), { states: ["a retiring", "b active"], published: "ba", signs: "b" });
    await world.until(manager.remove(kidOf("a"), { force: true }));
    assert.deepEqual(await now(), { states: ["a removed", "b active"], published: "b", signs: "b" });

    await world.until(manager.rotate({ use: "sig" }));
    await world.until(manager.retire(kidOf("b"), { force: true }));
    assert.deepEqual(await now(), { states: ["a removed", "b retiring", "c active"], published: "cb", signs: "c" });
    await world.stop(replica);
  });

  test("rollBack() makes the earlier key sign again in every process, unless the HSM no longer has the key", async (t) => {
    const { world, manager, kidOf, now, replica } = await start();
    t.after(() => gone.clear());
    const other = await world.start({ openSigner: open });
    await world.pass(second);
    await world.until(manager.rotate({ now: true }));
    gone.add("a");
    const late = await world.start({ openSigner: open });
    await assert.rejects(world.until(late.manager.rollBack()), { code: "ERR_SIGNER_KEY_STATE" });
    assert.deepEqual((await now()).states, ["a retiring", "b active"]);
    gone.clear();
    await world.until(manager.rollBack({ kid: null }));
    await world.idle();
    assert.deepEqual(await now(), { states: ["a active", "b retiring"], published: "ab", signs: "a" });
    for (const { signs } of [await seen(other), await seen(late)]) assert.equal(signs, kidOf("a"));
    await world.passTo(retireMs + hour);
    assert.deepEqual((await now()).states, ["a active", "b removed"]);
    await world.stop(replica, other, late);
  });

  test("decommission(): every process stops signing, keys are published until their tokens have expired, and no new key is generated", async () => {
    const { world, manager, kidOf, now, made, replica } = await start();
    const other = await world.start({ openSigner: open });
    await world.until(manager.rotate());
    const permit = other.manager.permit(kidOf("a"));
    permit();
    await world.until(manager.decommission());
    await world.idle();
    const short = "public, max-age=300, must-revalidate";
    assert.deepEqual(await now(), {
      states: ["a retiring", "b removed"],
      published: "a",
      signs: "ERR_SIGNER_DECOMMISSIONED",
    });
    assert.deepEqual(await seen(other), {
      kids: [kidOf("a")],
      cacheControl: short,
      signs: "ERR_SIGNER_DECOMMISSIONED",
    });
    assert.throws(permit, { code: "ERR_SIGNER_DECOMMISSIONED" }, "a request that obtained its key before");
    await assert.rejects(world.until(manager.rotate({ now: true })), {
      code: "ERR_ISSUER_DECOMMISSIONED",
      allowedAt: undefined,
    });
    await world.passTo(retireMs - second);
    assert.equal((await now()).published, "a");
    await world.passTo(retireMs + second);
    const empty = { kids: [placeholderKey.kid], cacheControl: short, signs: "ERR_SIGNER_DECOMMISSIONED" };
    for (const one of [replica, other]) assert.deepEqual(await seen(one), empty);
    await world.passTo(20 * day);
    const late = await world.start({ openSigner: open, createSigner: () => assert.fail("a key was generated") });
    for (const one of [replica, other, late]) {
      assert.deepEqual(await seen(one), empty);
      assert.ok(one.manager.isReady);
    }
    assert.deepEqual(made, ["a", "b", "c"]);
    await world.stop(replica, other, late);
  });

  test("decommission() with the now option revokes every key, even if decommission() was called earlier without that option; a new first key is generated once nothing trusts the revoked keys", async () => {
    const { world, manager, now, replica } = await start();
    await world.until(manager.decommission());
    const { events } = await world.until(manager.decommission({ now: true }));
    assert.deepEqual(
      events.map(({ type }) => type),
      ["revoked"],
    );
    assert.deepEqual((await seen(replica)).kids, [placeholderKey.kid]);
    for (const options of [{}, { now: true }])
      assert.deepEqual((await world.until(manager.decommission(options))).events, []);
    const again = staleMs + (7200 + 3600 + 600) * second;
    await world.passTo(again - second);
    await assert.rejects(world.until(manager.rotate()), { code: "ERR_ISSUER_DECOMMISSIONED" });
    await world.passTo(again + second);
    await world.until(manager.rotate());
    assert.match((await now()).states.join(), /^a revoked,\S+ active$/);
    assert.equal((await world.document()).format, 1);
    await world.stop(replica);
  });

  test("the key of a decommissioned issuer is a point on the curve whose private key no one can know", async () => {
    const x = createHash("sha256").update("jwksd: this issuer was decommissioned").digest("base64url");
    assert.equal(placeholderKey.publicJwk.x, x);
    await crypto.subtle.importKey("jwk", placeholderKey.publicJwk, { name: "ECDSA", namedCurve: "P-256" }, true, [
      "verify",
    ]);
  });

  test("make changes that each manager reports as its own or another manager's, and destroy the keys that they remove or revoke", async () => {
    const { world, manager, kidOf, replica, destroyed } = await start();
    const other = await world.start({ openSigner: open });
    const force = { force: true };
    const rows: readonly (readonly [command: () => Promise<unknown>, types: string, ended: string])[] = [
      [() => manager.rotate(), "announced", ""],
      [() => manager.activate(kidOf("b"), force), "retired activated", ""],
      [() => manager.remove(kidOf("a"), force), "removed", "a"],
      [() => manager.rotate({ now: true }), "announced retired activated", ""],
      [() => manager.revoke(kidOf("c")), "announced retired activated revoked", "c"],
    ];
    for (const [command, types, ended] of rows) {
      const before = [replica, other].map(({ events }) => events.length);
      await world.until(command());
      await world.idle();
      const [own, others] = [replica, other].map(({ events }, i) =>
        events
          .slice(before[i])
          .flatMap((event) =>
            event.type === "changed" ? [`${event.by}: ${event.events.map(({ type }) => type).join(" ")}`] : [],
          ),
      );
      assert.deepEqual([own, others], [[`this: ${types}`], [`another: ${types}`]]);
      await eventually("the key is destroyed", () => destroyed.join("") === ended);
      destroyed.length = 0;
    }
    await world.stop(replica, other);
  });

  test("make changes that the manager reports as its own, even if the store's replies to the commits are lost", async () => {
    const { world, manager, replica } = await start();
    world.store.hook = async (operation, go) => {
      const response = await go();
      if (operation !== "write") return response;
      world.store.isGone = true;
      throw new Error("socket hang up");
    };
    await assert.rejects(world.until(manager.rotate({ use: "enc" })), { code: "ERR_COMMIT_UNKNOWN" });
    world.store.hook = undefined;
    world.store.isGone = false;
    const before = replica.events.length;
    await world.until(replica.manager.runDueSteps());
    const [event] = replica.events.slice(before);
    assert.equal(event?.type === "changed" && event.by, "this");
    await world.stop(replica);
  });

  test("destroy and report a key that was generated for a refused command", async () => {
    const { world, manager, made, destroyed, replica } = await start();
    await world.until(manager.rotate());
    await assert.rejects(world.until(manager.rotate()), { code: "ERR_TRANSITION" });
    assert.deepEqual([made, destroyed], [["a", "b", "c"], ["c"]]);
    assert.deepEqual(replica.events.at(-1), { type: "orphaned", uri: "c", isDestroyed: true });
    await world.stop(replica);
  });

  test("revoke() and rotate() use the store's current state rather than the state that was last read", async () => {
    const { world, manager, kidOf, now, replica } = await start();
    await world.until(manager.rotate());
    // The other process commits without notifying this one.
    world.store.isGone = true;
    const other = accessTo(await custodyOf(world.store.register, [world.wrappingKey], { issuer, isChosen: true }));
    await other.change(async ({ document: { records, policy }, now }) =>
      applyCommand(records, { type: "remove", kid: kidOf("b"), force: true }, { policy, now }),
    );
    world.store.isGone = false;
    await world.until(manager.revoke(kidOf("a")));
    assert.deepEqual((await now()).states, ["a revoked", "b removed", "c active"]);
    await world.stop(replica);
  });

  test("a signer that never closes does not delay a command", async (t) => {
    const { world, manager, kidOf, now, replica } = await start();
    t.after(() => (close = async () => {}));
    close = () => new Promise(() => {});
    await world.until(manager.rotate({ now: true }));
    await world.pass(31 * second);
    await world.until(manager.revoke(kidOf("a")));
    assert.deepEqual((await now()).states, ["a revoked", "b active"]);
    await world.passTo(5 * day);
    assert.deepEqual((await now()).states, ["a revoked", "b removed", "c active"]);
    assert.ok(replica.manager.isReady);
    const stopped = world.stop(replica);
    await world.pass(10 * second);
    await stopped;
  });

  test("a command that comes too early needs the force option, and null does not count as setting it", async () => {
    const { world, manager, kidOf, now, replica } = await start();
    await world.until(manager.rotate());
    const before = await now();
    for (const attempt of [
      () => manager.activate(kidOf("b")),
      () => manager.activate(kidOf("b"), { force: null }),
      () => manager.retire(kidOf("a"), { force: false }),
    ])
      await refusal(() => world.until(attempt()), "ERR_TOO_EARLY");
    assert.deepEqual(await now(), before);
    await world.pass(day);
    assert.equal((await now()).signs, "b", "planned steps continue");
    await refusal(() => world.until(manager.remove(kidOf("a"))), "ERR_TOO_EARLY");
    await world.stop(replica);
  });

  test("for encryption keys, rotate() uses the alg option or, if the option is not given, the active key's alg", async () => {
    const { world, manager, made, replica } = await start();
    await world.until(manager.rotate({ use: "enc", alg: "ECDH-ES" }));
    await world.until(manager.rotate({ use: "enc", alg: null, now: true }));
    const keys = liveRecords(manager.records).filter(({ use }) => use === "enc");
    assert.deepEqual(
      keys.map(({ alg, state }) => `${alg} ${state}`),
      ["ECDH-ES retiring", "ECDH-ES active"],
    );
    assert.deepEqual(made, ["a"]);
    await world.stop(replica);
  });
});

test("rejects an invalid kid or option before it generates a key", async () => {
  const { world, manager, made, replica } = await start();
  const any = manager as unknown as Record<string, (...args: unknown[]) => Promise<unknown>>;
  const { calls } = world.store;
  const rows: readonly [method: string, args: readonly unknown[], code: JwksdErrorCode][] = [
    ["rotate", [{ use: "foo" }], "ERR_OPTION_INVALID"],
    ["rotate", [{ alg: "" }], "ERR_OPTION_INVALID"],
    ["rotate", ["sig"], "ERR_OPTION_INVALID"],
    ["revoke", [], "ERR_OPTION_INVALID"],
    ["revoke", [""], "ERR_OPTION_INVALID"],
    ["revoke", [{ kid: "a" }], "ERR_OPTION_INVALID"],
    ...["activate", "retire", "remove"].flatMap((method): [string, unknown[], JwksdErrorCode][] => [
      [method, [], "ERR_OPTION_INVALID"],
      [method, [5], "ERR_OPTION_INVALID"],
      [method, ["a", true], "ERR_OPTION_INVALID"],
    ]),
  ];
  for (const [method, args, code] of rows) {
    const { name } = await refusal(() => any[method]?.(...args), code);
    assert.equal(name, "ConfigError", `${method}(${JSON.stringify(args)})`);
  }
  assert.deepEqual([made, world.store.calls], [["a"], calls]);
  for (const method of ["activate", "retire", "remove", "revoke"])
    await refusal(() => world.until(any[method]?.("unknown") ?? Promise.resolve()), "ERR_KID_UNMANAGED");
  assert.deepEqual(made, ["a"]);
  await world.stop(replica);
});

describe("generates a key only if the key is needed", () => {
  const rows: readonly [name: string, acts: string, states: readonly string[], published: string][] = [
    ["rotate now, with an announced key: it signs", "rotate, now", ["a retiring", "b active"], "ba"],
    ["rotate now, without an announced key: a new key signs", "now", ["a retiring", "b active"], "ba"],
    ["revoke the active key, without an announced key: a new key", "revoke a", ["a revoked", "b active"], "b"],
    ["revoke the active key, with an announced key: it signs", "rotate, revoke a", ["a revoked", "b active"], "b"],
    ["revoke the announced key: no new key", "rotate, revoke b", ["a active", "b revoked"], "a"],
    ["revoke a retiring key: no new key", "now, revoke a", ["a revoked", "b active"], "b"],
  ];
  for (const [name, acts, states, published] of rows) {
    test(name, async () => {
      const { world, manager, made, kidOf, now, replica } = await start();
      const act = async (text: string): Promise<void> => {
        const [, kid] = text.split(" ");
        const acting = kid === undefined ? manager.rotate({ now: text === "now" }) : manager.revoke(kidOf(kid));
        await world.until(acting);
      };
      for (const text of acts.split(", ")) await act(text);
      assert.deepEqual(await now(), { states, published, signs: published[0] });
      const last = acts.split(", ").at(-1) ?? "";
      if (last.startsWith("revoke")) await refusal(() => act(last), "ERR_TRANSITION");
      assert.deepEqual(made, ["a", "b"]);
      await world.stop(replica);
    });
  }
});
