import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { describe, test } from "node:test";
import { JwksdError, StoreError } from "../../src/base/errors.ts";
import { CannotSign, type KeyringOptions, createKeyring } from "../../src/rotation/manager/keyring.ts";
import { externalKey, makeLocalKey } from "../../src/rotation/manager/make-key.ts";
import { announce, applyCommand } from "../../src/rotation/rules/commands.ts";
import { type Seen, createStoreAccess } from "../../src/rotation/manager/store-access.ts";
import { rotationPolicy } from "../../src/rotation/rules/policy.ts";
import type { PublicJwk } from "../../src/keys/jwk/public.ts";
import { localSigner } from "../../src/keys/signer/local.ts";
import type { ExternalSigner } from "../../src/keys/signer/signer.ts";
import { memoryStore } from "../../src/rotation/store/memory.ts";
import type { LiveRecord } from "../../src/rotation/rules/records.ts";
import type { Register } from "../../src/rotation/store/register.ts";
import { ecKey, withoutPrivate } from "../support/keys.ts";
import { custodyOf, documentOf, newWrappingKey } from "../support/managed.ts";
import { settled, simulatedClock } from "../support/simulated.ts";

const issuer = "https://op.example";
const wrappingKey = newWrappingKey();
const never = (): Promise<never> => new Promise(() => {});

async function keyringOf(options: Partial<KeyringOptions> = {}, store: Register = memoryStore()) {
  const clock = simulatedClock();
  const custody = await custodyOf(store, [wrappingKey], { issuer, isChosen: true });
  const { signal } = new AbortController();
  const access = createStoreAccess(custody, { policy: rotationPolicy(), clock, signal });
  const keyring = createKeyring(custody, access, { clock, signal, ...options });
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
  return keyring.change(({ document: { records }, now }) =>
    announce({ records, events: [] }, key, now, "it is the first"),
  );
}

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
  for (const [name, options, call] of [
    ["createSigner", { createSigner: never }, "make"],
    ["openSigner", { openSigner: never }, "open"],
    ["destroySigner", { destroySigner: never }, "destroy"],
  ] as const) {
    test(name, async () => {
      let isDestroyed: boolean | undefined;
      const { keyring, clock } = await keyringOf({ ...options, onOrphan: (_uri, is) => void (isDestroyed = is) });
      const record = recordOf(publicJwkOf("a"), { state: "active", activatedAt: 1 });
      const outcome = (
        call === "make"
          ? keyring.makeKey("sig", "ES256")
          : call === "open"
            ? keyring.open([record]).then(({ unopened }) => Promise.reject(unopened.get("x")))
            : keyring.change(() => ({}), await externalKey(await externalSigner("x:y"))).then(() => isDestroyed)
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

test("a key that was made in an HSM stays there where the store may name it, and only there", async () => {
  const store = memoryStore();
  const told: [uri: string, isDestroyed: boolean][] = [];
  const onOrphan = (uri: string, isDestroyed: boolean): void => void told.push([uri, isDestroyed]);
  const failing = {
    ...store,
    read: async () => (isGone ? Promise.reject(new StoreError("ERR_STORE_UNAVAILABLE", "gone")) : store.read()),
    write: noSession,
  };
  const { keyring, clock } = await keyringOf(
    { openSigner: (uri) => externalSigner(uri), destroySigner: async () => {}, onOrphan },
    failing,
  );
  let isGone = false;
  const change = async (uri: string) => {
    const key = await externalKey(await externalSigner(uri));
    const changed = keyring.change(
      ({ now }) => announce({ records: [], events: [] }, key, now, "it is the first"),
      key,
    );
    await assert.rejects(changed);
  };
  await change("not:written");
  isGone = true;
  await change("not:decided");
  assert.deepEqual(told, [
    ["not:written", false],
    ["not:decided", true],
  ]);
  assert.equal(clock.timers, 0);
});

const activate = ({ document: { records, policy }, now }: Seen) =>
  applyCommand(records, { type: "activate", kid: "x", force: true }, { policy, now });

describe("a change makes the same checks, whoever asks for it", () => {
  for (const [what, options, expected] of [
    ["cannot be opened", { openSigner: () => Promise.reject(new Error("gone")) }, Error],
    ["cannot sign", { openSigner: (uri: string) => externalSigner(uri, true) }, Error],
    ["is another key", { openSigner: (uri: string) => externalSigner(uri) }, Error],
  ] as const) {
    test(`a new key that ${what} is not recorded`, async () => {
      const opened = await keyringOf(options);
      await makeFirst(opened);
      const before = await documentOf(opened.store);
      const key = recordOf(publicJwkOf(what === "is another key" ? "b" : "a"));
      await assert.rejects(
        opened.keyring.change(({ document: { records }, now }) => announce({ records, events: [] }, key, now, "x")),
        expected,
      );
      assert.deepEqual(await documentOf(opened.store), before);
    });
  }

  test("a key becomes active only after it has signed", async () => {
    let breaks = false;
    const opened = await keyringOf({ openSigner: (uri) => externalSigner(uri, breaks) });
    await makeFirst(opened);
    await opened.keyring.change(({ document: { records }, now }) =>
      announce({ records, events: [] }, recordOf(publicJwkOf("a")), now, "x"),
    );
    breaks = true;
    const { keyring } = await keyringOf({ openSigner: (uri) => externalSigner(uri, breaks) }, opened.store);
    await assert.rejects(keyring.change(activate), (error) => error instanceof CannotSign && error.kid === "x");
    breaks = false;
    const last = await keyringOf({ openSigner: (uri) => externalSigner(uri) }, opened.store);
    assert.equal((await last.keyring.change(activate)).records[1]?.state, "active");
  });
});

/** A key that is in a module. */
const recordOf = (publicJwk: PublicJwk, members: Partial<LiveRecord> = {}): LiveRecord => ({
  kid: "x",
  use: "sig",
  alg: "ES256",
  state: "announced",
  announcedAt: 0,
  thumbprint: thumbprintOf(publicJwk),
  publicJwk,
  privateHalf: { uri: "module:1" },
  ...members,
});
const publicJwkOf = (name: string): PublicJwk => withoutPrivate(ecKey(name)) as unknown as PublicJwk;
const thumbprintOf = ({ crv, kty, x, y }: { readonly [Name in "crv" | "kty" | "x" | "y"]?: unknown }): string =>
  createHash("sha256").update(JSON.stringify({ crv, kty, x, y })).digest("base64url");

async function closing(key: PublicJwk) {
  const { promise, resolve } = Promise.withResolvers<void>();
  const signer = await externalSigner("module:a");
  const { keyring } = await keyringOf({ openSigner: async () => ({ ...signer, close: () => promise }) });
  const record = recordOf(key, { state: "active", activatedAt: 0 });
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
    const { keyring, record, closed } = await closing(publicJwkOf("a"));
    await keyring.open([record]);
    const outcome = await outcomeOf(keyring.close());
    assert.equal(outcome.now, "pending");
    closed();
    await settled();
    assert.equal(outcome.now, "done");
  });

  test("whose key is not the one that is published, which is refused at once", async () => {
    const { keyring, record, closed } = await closing(publicJwkOf("b"));
    assert.ok(code("ERR_KEY_MISMATCH")((await keyring.open([record])).unopened.get("x")));
    const outcome = await outcomeOf(keyring.close());
    assert.equal(outcome.now, "pending");
    closed();
    await settled();
    assert.equal(outcome.now, "done");
  });
});
