import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { JwksdError } from "../../src/base/errors.ts";
import { CannotSign, type KeyringOptions, createKeyring } from "../../src/rotation/manager/keyring.ts";
import { makeLocalKey } from "../../src/rotation/manager/make-key.ts";
import { announce } from "../../src/rotation/rules/commands.ts";
import { rotationPolicy } from "../../src/rotation/rules/policy.ts";
import { localSigner } from "../../src/keys/signer/local.ts";
import type { ExternalSigner } from "../../src/keys/signer/signer.ts";
import { memoryStore } from "../../src/rotation/store/memory.ts";
import type { KeyRecord, KeyStore } from "../../src/rotation/store/store.ts";
import { ecKey } from "../support/keys.ts";
import { newWrappingKey, custodyOf } from "../support/managed.ts";
import { settled, simulatedClock } from "../support/simulated.ts";

const issuer = "https://op.example";
const wrappingKey = newWrappingKey();
const never = (): Promise<never> => new Promise(() => {});

async function keyringOf(options: Partial<KeyringOptions> = {}, store: KeyStore = memoryStore()) {
  const clock = simulatedClock();
  const custody = await custodyOf(store, [wrappingKey], { issuer, isChosen: true });
  const { signal } = new AbortController();
  const keyring = createKeyring(custody, { policy: rotationPolicy(), clock, signal, ...options });
  return { clock, custody, store, keyring };
}

const noSession = async (): Promise<never> => {
  throw new Error("no session");
};

async function externalSigner(uri: string, breaks = false): Promise<ExternalSigner> {
  const signer = await localSigner(ecKey("a"));
  return {
    publicKey: signer.publicKey,
    uri,
    sign: (input) => (breaks ? noSession() : signer.sign(input)),
    close: async () => {},
  };
}

async function makeFirst({ keyring, custody }: Awaited<ReturnType<typeof keyringOf>>) {
  const key = await makeLocalKey("sig", "ES256", custody);
  return keyring.change((records, now) => announce({ records, events: [] }, key, now, "it is the first"));
}

const undecided = (): never => assert.fail("records that break a rule are decided by");

test("nothing is decided, and nothing committed, by records that break a rule", async () => {
  const { keyring, store } = await keyringOf();
  const custody = await custodyOf(store, [wrappingKey], { issuer, isChosen: true });
  const key = await makeLocalKey("sig", "ES256", custody);
  await custody.store.commit(0, [{ ...key, state: "announced", announcedAt: 0 }], []);
  await assert.rejects(keyring.change(undecided), code("ERR_RECORDS_INVALID"));
  assert.equal((await store.load()).revision, 1);
});

const code = (expected: string) => (error: unknown) => error instanceof JwksdError && error.code === expected;

test("a plain signer in the place of one with a URI is refused by the name of its option", async () => {
  const plain = (await localSigner(ecKey("plain"))) as unknown as ExternalSigner;
  const { keyring } = await keyringOf({ createSigner: async () => plain, openSigner: async () => plain });
  await assert.rejects(keyring.makeKey("sig", "ES256"), {
    code: "ERR_OPTION_INVALID",
    message: /^"createSigner" must give an ExternalSigner: .* uri and close$/,
  });
});

describe("a call of an HSM or key service that never ends is given up after a minute", () => {
  const external = {
    kid: "a",
    use: "sig",
    alg: "ES256",
    publicJwk: { kty: "EC", crv: "P-256", x: "", y: "" },
  } as const;
  for (const [name, options, call] of [
    ["createSigner", { createSigner: never }, "make"],
    ["openSigner", { openSigner: never }, "open"],
    ["destroySigner", { destroySigner: never }, "destroy"],
  ] as const) {
    test(name, async () => {
      const { keyring, clock } = await keyringOf(options);
      const record = {
        ...external,
        state: "active",
        announcedAt: 1,
        activatedAt: 1,
        privateHalf: { uri: "x:y" },
      } as const;
      const outcome = (
        call === "make"
          ? keyring.makeKey("sig", "ES256")
          : call === "open"
            ? keyring.open([record])
            : keyring.destroyUnrecorded("x:y")
      ).then(
        (value) => value,
        (error: JwksdError) => error.code,
      );
      await clock.advance(59_999);
      await settled();
      assert.equal(await Promise.race([outcome, Promise.resolve("pending")]), "pending");
      await clock.advance(1);
      assert.equal(await outcome, call === "destroy" ? false : "ERR_SIGNER_TIMEOUT");
      assert.equal(clock.timers, 0);
    });
  }
});

describe("whoever changes keys makes the same checks", () => {
  test("the fence: a key that was announced for too short is not followed", async () => {
    const opened = await keyringOf();
    const { records } = await makeFirst(opened);
    const [active] = records;
    assert.ok(active !== undefined);
    const { unannounced: _, ...rest } = active;
    const { revision } = await opened.custody.store.load();
    await opened.custody.store.commit(revision, [{ ...rest, announceForSeconds: 86_400 }], []);
    const { keyring } = await keyringOf({}, opened.store);
    for (const way of ["preview", "change"] as const)
      await assert.rejects(
        keyring[way]((records) => ({ records, events: [] })),
        code("ERR_RECORDS_INVALID"),
      );
  });

  test("an older copy of the store is not followed", async () => {
    const opened = await keyringOf();
    await makeFirst(opened);
    const copy = await opened.store.load();
    const next = await makeLocalKey("sig", "ES256", opened.custody);
    await opened.keyring.change((records, now) => announce({ records, events: [] }, next, now, "x"));
    opened.store.load = async () => copy;
    await assert.rejects(
      opened.keyring.change((records) => ({ records, events: [] })),
      code("ERR_RECORDS_INVALID"),
    );
  });

  for (const [what, options, expected] of [
    ["cannot be opened", { openSigner: () => Promise.reject(new Error("gone")) }, Error],
    ["cannot sign", { openSigner: (uri: string) => externalSigner(uri, true) }, Error],
    ["is another key", { openSigner: (uri: string) => externalSigner(uri) }, Error],
  ] as const) {
    test(`a new key that ${what} is not recorded`, async () => {
      const opened = await keyringOf(options);
      await makeFirst(opened);
      const before = (await opened.store.load()).revision;
      const { publicKey } = await localSigner(ecKey(what === "is another key" ? "b" : "a"));
      const key = {
        kid: "x",
        use: "sig",
        alg: "ES256",
        publicJwk: publicKey as never,
        privateHalf: { uri: "module:1" },
      } as const;
      await assert.rejects(
        opened.keyring.change((records, now) => announce({ records, events: [] }, key, now, "x")),
        expected,
      );
      assert.equal((await opened.store.load()).revision, before);
    });
  }

  test("a key becomes active only after it has signed", async () => {
    let breaks = false;
    const opened = await keyringOf({ openSigner: (uri) => externalSigner(uri, breaks) });
    const { publicKey } = await localSigner(ecKey("a"));
    const key = { kid: "x", use: "sig", alg: "ES256", publicJwk: publicKey as never } as const;
    await makeFirst(opened);
    await opened.keyring.change((records, now) =>
      announce({ records, events: [] }, { ...key, privateHalf: { uri: "module:1" } }, now, "x"),
    );
    breaks = true;
    const { keyring } = await keyringOf({ openSigner: (uri) => externalSigner(uri, breaks) }, opened.store);
    const activate = (records: Parameters<Parameters<typeof keyring.change>[0]>[0]) => ({
      records: records.map((record) =>
        record.kid === "x"
          ? { ...record, state: "active" as const, activatedAt: record.announcedAt, unannounced: true as const }
          : { ...record, state: "retiring" as const, retiredAt: record.announcedAt },
      ),
      events: [],
    });
    await assert.rejects(keyring.change(activate), (error) => error instanceof CannotSign && error.kid === "x");
    breaks = false;
    const last = await keyringOf({ openSigner: (uri) => externalSigner(uri) }, opened.store);
    assert.equal((await last.keyring.change(activate)).records[1]?.state, "active");
  });
});

async function closing(key: ExternalSigner["publicKey"]) {
  const { promise, resolve } = Promise.withResolvers<void>();
  const signer = await externalSigner("module:a");
  const { keyring } = await keyringOf({ openSigner: async () => ({ ...signer, close: () => promise }) });
  const record = {
    kid: "a",
    use: "sig",
    alg: "ES256",
    state: "active",
    announcedAt: 0,
    activatedAt: 0,
    publicJwk: key,
    privateHalf: { uri: "module:a" },
  } as unknown as KeyRecord;
  return { keyring, record, closed: resolve };
}
const outcomeOf = async (attempt: Promise<unknown>): Promise<{ now: string }> => {
  const outcome = { now: "pending" };
  const settle = (now: string) => (): void => void (outcome.now = now);
  attempt.then(settle("done"), settle("refused"));
  await settled();
  return outcome;
};

describe("the end waits until a signer is closed", () => {
  test("that was in use", async () => {
    const { keyring, record, closed } = await closing((await externalSigner("module:a")).publicKey);
    await keyring.open([record]);
    const outcome = await outcomeOf(keyring.close());
    assert.equal(outcome.now, "pending");
    closed();
    await settled();
    assert.equal(outcome.now, "done");
  });

  test("whose key is not the one that is published, which is refused at once", async () => {
    const { keyring, record, closed } = await closing((await localSigner(ecKey("b"))).publicKey);
    await assert.rejects(keyring.open([record]), code("ERR_KEY_MISMATCH"));
    const outcome = await outcomeOf(keyring.close());
    assert.equal(outcome.now, "pending");
    closed();
    await settled();
    assert.equal(outcome.now, "done");
  });
});
