import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { describe, test } from "node:test";
import { inspect } from "node:util";
import * as jose from "jose";
import { JwksdError, StoreError } from "../../src/base/errors.ts";
import type { PublicJwk } from "../../src/keys/jwk/public-members.ts";
import { localSigner } from "../../src/keys/signer/local-signer.ts";
import type { ExternalSigner } from "../../src/keys/signer/signer.ts";
import { type Wrapping, readWrappingKeys } from "../../src/rotation/custody/key-wrapping.ts";
import { CannotSign, type KeyringOptions, createKeyring } from "../../src/rotation/manager/key-changes.ts";
import { makeLocalKey, wrapKey, externalKey } from "../../src/rotation/manager/private-keys.ts";
import { createStoreAccess } from "../../src/rotation/manager/store-access.ts";
import type { Seen } from "../../src/rotation/manager/store-clock.ts";
import type { KeyManagerEvent } from "../../src/rotation/manager/types.ts";
import { announce, applyCommand } from "../../src/rotation/rules/commands.ts";
import type { LiveRecord } from "../../src/rotation/rules/key-records.ts";
import { rotationPolicy } from "../../src/rotation/rules/policy.ts";
import { memoryStore } from "../../src/rotation/store/memory.ts";
import type { Register } from "../../src/rotation/store/register.ts";
import { ecKey, named, privateMembers, rsaKey, withoutPrivate } from "../support/keys.ts";
import { createWrapping, custodyOf, documentOf, newWrappingKey } from "../support/managed.ts";
import { assertSilent, refusal } from "../support/refusal.ts";
import { settled, simulatedClock } from "../support/simulated.ts";

const issuer = "https://op.example";
const wrappingKey = (fill: number): string => Buffer.alloc(32, fill).toString("base64url");
const [k1, k2, k3] = [wrappingKey(1), wrappingKey(2), wrappingKey(3)];
const idOf = (key: string): Promise<string> => jose.calculateJwkThumbprint({ kty: "oct", k: key });

const key = ecKey("a");
const wrapping = await createWrapping([k1], issuer);
const jwe = await wrapping.wrap("a", { ...key });
const [header = "", , iv = "", ciphertext = "", tag = ""] = jwe.split(".");

/** Asserts that the attempt is refused with this code and that the error contains no part of any key, at any depth. Returns its message. */
async function silentRefusal(attempt: () => unknown, code: JwksdError["code"], ...secrets: unknown[]): Promise<string> {
  const error = await refusal(attempt, code);
  assertSilent(error, [key, k1, k2, k3, ciphertext, ...secrets]);
  assert.equal(error.cause, undefined);
  return error.message;
}

describe("unwraps a wrapped key unchanged", () => {
  for (const [name, privateJwk] of [
    ["EC P-256", ecKey("p256")],
    ["EC P-521", ecKey("p521", "P-521")],
    ["RSA", rsaKey()],
    ["with additional members", { ...ecKey("more"), kid: "more", key_ops: ["sign"], "ext-ä": { deep: ["\u0000"] } }],
  ] as const) {
    test(name, async () => {
      const wrapped = await wrapping.wrap("k", privateJwk as jose.JWK);
      assert.deepEqual(await wrapping.unwrap("k", wrapped), privateJwk);
      for (const member of privateMembers) {
        const value = (privateJwk as Record<string, unknown>)[member];
        if (typeof value === "string") assert.ok(!wrapped.includes(value.slice(0, 12)));
      }
    });
  }
});

test("the header contains the algorithm, wrapping key, issuer and kid, and nothing else", async () => {
  assert.deepEqual(jose.decodeProtectedHeader(jwe), {
    alg: "dir",
    enc: "A256GCM",
    kid: await idOf(k1),
    iss: issuer,
    sub: "a",
  });
});

test("wraps a key differently each time", async () => {
  const again = await wrapping.wrap("a", { ...key });
  const [sameHeader, , otherIv, otherCiphertext] = again.split(".");
  assert.equal(sameHeader, header);
  assert.notEqual(otherIv, iv);
  assert.notEqual(otherCiphertext, ciphertext);
});

describe("if there are several wrapping keys, the first is used for wrapping and all can be used for unwrapping", () => {
  test("a new first key can be added and the old one then dropped", async () => {
    const both = await createWrapping([k2, k1], issuer);
    assert.deepEqual(await both.unwrap("a", jwe), key);
    assert.equal(both.isCurrent(jwe), false);
    const rewrapped = await both.wrap("a", await both.unwrap("a", jwe));
    assert.equal(both.isCurrent(rewrapped), true);
    assert.deepEqual(await (await createWrapping([k3, k2], issuer)).unwrap("a", rewrapped), key);
  });

  test("names a missing wrapping key by its id, which reveals nothing about the key", async () => {
    const others = await createWrapping([k2, k3], issuer);
    const message = await silentRefusal(() => others.unwrap("a", jwe), "ERR_WRAPPING_KEY_MISSING");
    assert.match(message, new RegExp(`^kid "a" is wrapped with the wrapping key "${await idOf(k1)}"`));
  });

  test("a key's id is the same for every last character that its encoding may have", async () => {
    const canonical = k1;
    const sloppy = `${k1.slice(0, -1)}F`;
    assert.deepEqual(Buffer.from(sloppy, "base64url"), Buffer.from(canonical, "base64url"));
    const other = await createWrapping([sloppy], issuer);
    assert.deepEqual(await other.unwrap("a", jwe), key);
    assert.equal(other.isCurrent(jwe), true);
  });
});

describe("a wrapping key is 32 bytes in base64url", () => {
  const faults: readonly (readonly [text: unknown, fault: string])[] = [
    [undefined, "is not a string"],
    ["", "is empty"],
    [Buffer.alloc(31, 7).toString("base64url"), "has 42 characters, not 43"],
    [Buffer.alloc(33, 7).toString("base64url"), "has 44 characters, not 43"],
    [`${wrappingKey(7)}==`, "ends in more than one ="],
    [Buffer.alloc(32, 255).toString("base64"), "is in base64, with + or / instead of - and _"],
    [Buffer.alloc(32, 7).toString("hex"), "is in hexadecimal"],
    [`${wrappingKey(7)}\n`, "has characters that are not valid in base64url"],
    [JSON.stringify({ k: wrappingKey(7) }), "has characters that are not valid in base64url"],
  ];
  for (const [text, fault] of faults) {
    test(`reports an invalid key by its position: ${fault}`, async () => {
      const message = await silentRefusal(
        () => readWrappingKeys([k1, text as string], (index) => `wrapping.key, line ${index + 1},`),
        "ERR_WRAPPING_KEY_INVALID",
        text,
      );
      assert.match(
        message,
        new RegExp(`^wrapping\\.key, line 2, ${fault.replace("+", "\\+")}; a wrapping key is 32 random bytes`),
      );
    });
  }

  test("at least one wrapping key is needed", async () => {
    for (const keys of [[], " \n"]) await silentRefusal(() => createWrapping(keys, issuer), "ERR_WRAPPING_KEY_INVALID");
  });

  test("accepts white space between and around the keys in a string", async () => {
    const keys = await readWrappingKeys(` ${k1}\t${k2}\r\n${k3}\n`);
    assert.deepEqual(
      keys.map(({ id }) => id),
      await Promise.all([k1, k2, k3].map(idOf)),
    );
  });

  test("accepts base64 padding, as openssl and basenc write it, and reads the same key", async () => {
    const wrapped = await (await createWrapping([`${wrappingKey(7)}=`], issuer)).wrap("a", { kty: "EC" });
    assert.deepEqual(await (await createWrapping([wrappingKey(7)], issuer)).unwrap("a", wrapped), { kty: "EC" });
  });
});

describe("a wrapped key cannot replace another", () => {
  test("with a different kid", async () => {
    const message = await silentRefusal(() => wrapping.unwrap("b", jwe), "ERR_WRAPPED_KEY");
    assert.match(
      message,
      /^kid "b" of issuer "https:\/\/op.example": .* kid "a" of issuer "https:\/\/op.example"; set /,
    );
  });

  test("from a different issuer", async () => {
    const other = await createWrapping([k1], "https://other.example");
    const message = await silentRefusal(() => other.unwrap("a", jwe), "ERR_WRAPPED_KEY");
    assert.match(
      message,
      /^kid "a" of issuer "https:\/\/other.example": .* kid "a" of issuer "https:\/\/op.example"; set /,
    );
  });

  test("even if its header is changed to match", async () => {
    const forged = Buffer.from(JSON.stringify({ ...jose.decodeProtectedHeader(jwe), sub: "b" })).toString("base64url");
    const message = await silentRefusal(
      () => wrapping.unwrap("b", [forged, "", iv, ciphertext, tag].join(".")),
      "ERR_WRAPPED_KEY",
    );
    assert.match(message, /^kid "b": its wrapped private key is damaged$/);
  });
});

const flipped = (text: string): string => (text.startsWith("A") ? "B" : "A") + text.slice(1);
const headed = (change: object): string =>
  [
    Buffer.from(JSON.stringify({ ...jose.decodeProtectedHeader(jwe), ...change })).toString("base64url"),
    "",
    iv,
    ciphertext,
    tag,
  ].join(".");

describe("the error for a damaged wrapped key contains its kid but not its content", () => {
  const damages: readonly (readonly [string, unknown])[] = [
    ["an empty string", ""],
    ["not a string", undefined],
    ["a private JWK that was never wrapped", JSON.stringify(key)],
    ["a private JWK in base64", Buffer.from(JSON.stringify(key)).toString("base64url")],
    ["a header that is not JSON", [Buffer.from("{").toString("base64url"), "", iv, ciphertext, tag].join(".")],
    ["a changed header", [flipped(header), "", iv, ciphertext, tag].join(".")],
    ["an encrypted key", [header, "AAAA", iv, ciphertext, tag].join(".")],
    ["a changed IV", [header, "", flipped(iv), ciphertext, tag].join(".")],
    ["a changed ciphertext", [header, "", iv, flipped(ciphertext), tag].join(".")],
    ["a truncated ciphertext", [header, "", iv, ciphertext.slice(0, -4), tag].join(".")],
    ["a changed tag", [header, "", iv, ciphertext, flipped(tag)].join(".")],
    ["no tag", [header, "", iv, ciphertext].join(".")],
    ["an additional part", `${jwe}.`],
    ["another alg", headed({ alg: "A256GCMKW" })],
    ["another enc", headed({ enc: "A128GCM" })],
    ["a critical header", headed({ crit: ["x"], x: 1 })],
  ];
  for (const [name, text] of damages) {
    test(name, async () => {
      const message = await silentRefusal(() => wrapping.unwrap("a", text as string), "ERR_WRAPPED_KEY", text);
      assert.equal(message, 'kid "a": its wrapped private key is damaged');
    });
  }

  for (const algs of [
    { alg: "dir", enc: "A128CBC-HS256" },
    { alg: "A256GCMKW", enc: "A256GCM" },
    { alg: "A256KW", enc: "A256GCM" },
  ]) {
    test(`even if it was wrapped with different algorithms, ${algs.alg} and ${algs.enc}`, async () => {
      const plaintext = new TextEncoder().encode(JSON.stringify(key));
      const protectedHeader = { ...jose.decodeProtectedHeader(jwe), ...algs };
      const wrapped = await new jose.CompactEncrypt(plaintext)
        .setProtectedHeader(protectedHeader)
        .encrypt(Buffer.alloc(32, 1));
      await silentRefusal(() => wrapping.unwrap("a", wrapped), "ERR_WRAPPED_KEY", wrapped);
    });
  }

  test("a damaged key does not count as wrapped with the first wrapping key", () => {
    assert.equal(wrapping.isCurrent(""), false);
    assert.equal(wrapping.isCurrent(jwe), true);
  });

  test("it does not quote a plaintext that is not JSON", async () => {
    const plaintext = new TextEncoder().encode(`{"d":"${key.d}"`);
    const protectedHeader = { ...(jose.decodeProtectedHeader(jwe) as jose.CompactJWEHeaderParameters) };
    const wrapped = await new jose.CompactEncrypt(plaintext)
      .setProtectedHeader(protectedHeader)
      .encrypt(Buffer.alloc(32, 1));
    await silentRefusal(() => wrapping.unwrap("a", wrapped), "ERR_WRAPPED_KEY");
  });
});

test("inspecting the wrapping object reveals no keys", () => {
  const inspected = inspect(wrapping, { depth: Infinity, showHidden: true }) + JSON.stringify(wrapping);
  assert.ok(!inspected.includes(k1.slice(0, 12)) && !inspected.includes("01, 01") && !inspected.includes("1, 1, 1"));
});

/** Returns the private JWK of a generated or imported key. */
async function privateHalf(made: Awaited<ReturnType<typeof wrapKey>>, by: Wrapping = wrapping): Promise<jose.JWK> {
  assert.ok("jwe" in made.privateHalf);
  return by.unwrap(made.kid, made.privateHalf.jwe);
}

describe("a generated key is wrapped, and its kid is its thumbprint", () => {
  for (const [use, alg] of [
    ["sig", "ES256"],
    ["enc", "RSA-OAEP-256"],
    ["enc", "ECDH-ES"],
    ["enc", "ECDH-ES+A256KW"],
  ] as const) {
    test(`${use} ${alg}`, async () => {
      const made = await makeLocalKey(use, alg, wrapping);
      const privateJwk = await privateHalf(made);
      assert.deepEqual(
        { ...made, privateHalf: 0 },
        { kid: made.kid, use, alg, thumbprint: made.kid, publicJwk: withoutPrivate(privateJwk), privateHalf: 0 },
      );
      assert.equal(made.kid, await jose.calculateJwkThumbprint(privateJwk));
      assert.equal(typeof privateJwk.d, "string");
      assert.ok(!JSON.stringify(made).includes(privateJwk.d as string));
    });
  }
});

test("keeps an imported key's kid and its whole private key", async () => {
  const privateJwk = { ...named("2026-11", ecKey("imported")), alg: "ES256", use: "sig" };
  const made = await wrapKey("sig", "ES256", privateJwk, wrapping, "2026-11");
  assert.equal(made.kid, "2026-11");
  assert.deepEqual(await privateHalf(made), privateJwk);
  const { x, y } = privateJwk as unknown as { x: string; y: string };
  assert.deepEqual(made.publicJwk, { kty: "EC", crv: "P-256", x, y });
});

describe("never records a key that no provider would publish, because records are permanent", () => {
  const { d: _, ...publicEc } = ecKey("a");
  const mixed = { ...ecKey("a"), d: ecKey("b").d };
  const rsa = rsaKey();
  const cases: readonly (readonly ["sig" | "enc", string, object, string, JwksdError["code"]])[] = [
    ["sig", "ES256", ecKey("a"), "", "ERR_KID_INVALID"],
    ["sig", "ES256", ecKey("a"), "\uD800", "ERR_KID_INVALID"],
    ["sig", "ES256", ecKey("a", "P-384"), "k", "ERR_KEY_NOT_P256"],
    ["sig", "ES256", rsa, "k", "ERR_KEY_NOT_P256"],
    ["sig", "ES256", publicEc, "k", "ERR_PRIVATE_KEY_MISSING"],
    ["sig", "ES256", { ...ecKey("a"), use: "enc" }, "k", "ERR_KEY_PURPOSE"],
    ["sig", "ES256", mixed, "k", "ERR_KEY_MISMATCH"],
    ["enc", "ECDH-ES", ecKey("a", "P-384"), "", "ERR_KID_INVALID"],
    ["enc", "ECDH-ES", publicEc, "k", "ERR_PRIVATE_KEY_MISSING"],
    ["enc", "RSA-OAEP-256", withoutPrivate(rsa), "k", "ERR_PRIVATE_KEY_MISSING"],
    ["enc", "ECDH-ES", { ...ecKey("a"), use: "sig" }, "k", "ERR_KEY_PURPOSE"],
    ["enc", "RSA-OAEP-256", ecKey("a"), "k", "ERR_KEY_UNSUPPORTED"],
    ["enc", "RSA1_5", rsa, "k", "ERR_KEY_UNSUPPORTED"],
    ["enc", "ECDH-ES", mixed, "k", "ERR_KEY_MISMATCH"],
  ];
  for (const [use, alg, jwk, kid, code] of cases) {
    test(`${use} ${alg}, kid ${JSON.stringify(kid)}: ${code}`, async () => {
      const error = await refusal(() => wrapKey(use, alg, jwk, wrapping, kid), code);
      assertSilent(error, jwk);
      assert.match(error.message, kid === "k" ? /kid "k"/ : /kid/);
    });
  }
});

const ownWrappingKey = newWrappingKey();
const never = (): Promise<never> => new Promise(() => {});

async function keyringOf(options: KeyringOptions = {}, store: Register = memoryStore()) {
  const orphans: [uri: string, isDestroyed: boolean][] = [];
  const report = (event: KeyManagerEvent): void =>
    void (event.type === "orphaned" && orphans.push([event.uri, event.isDestroyed]));
  const clock = simulatedClock();
  const custody = await custodyOf(store, [ownWrappingKey], { issuer, isChosen: true });
  const { signal } = new AbortController();
  const access = createStoreAccess(custody, { policy: rotationPolicy(), clock, signal });
  const keyring = createKeyring({ custody, access, clock, signal, report }, options);
  return { clock, custody, store, keyring, orphans };
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

test("the error for a signer without a URI names the option", async () => {
  const plain = (await localSigner(ecKey("plain"))) as unknown as ExternalSigner;
  const { keyring } = await keyringOf({ createSigner: async () => plain, openSigner: async () => plain });
  await assert.rejects(keyring.makeKey("sig", "ES256"), {
    code: "ERR_OPTION_INVALID",
    message: /^"createSigner" must return an ExternalSigner, which has uri and close /,
  });
});

describe("a call to an HSM or key service times out after a minute", () => {
  for (const [name, options, call] of [
    ["createSigner", { createSigner: never }, "make"],
    ["openSigner", { openSigner: never }, "open"],
    ["destroySigner", { destroySigner: never }, "destroy"],
  ] as const) {
    test(name, async () => {
      const { keyring, clock, orphans } = await keyringOf(options);
      const record = recordOf(publicJwkOf("a"), { state: "active", activatedAt: 1 });
      const outcome = (
        call === "make"
          ? keyring.makeKey("sig", "ES256")
          : call === "open"
            ? keyring.open([record]).then(({ unavailable }) => Promise.reject(unavailable.get("x")))
            : keyring.change(() => ({}), await externalKey(await externalSigner("x:y"))).then(() => orphans[0]?.[1])
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

test("destroys a key that was generated in an HSM unless the store may refer to it", async () => {
  const store = memoryStore();
  const failing = {
    ...store,
    read: async () => (isGone ? Promise.reject(new StoreError("ERR_STORE_UNAVAILABLE", "gone")) : store.read()),
    write: noSession,
  };
  const { keyring, clock, orphans } = await keyringOf(
    { openSigner: (uri) => externalSigner(uri), destroySigner: async () => {} },
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
  assert.deepEqual(orphans, [
    ["not:written", false],
    ["not:decided", true],
  ]);
  assert.equal(clock.timers, 0);
});

const activate = ({ document: { records, policy }, now }: Seen) =>
  applyCommand(records, { type: "activate", kid: "x", force: true }, { policy, now });

describe("runs the same checks on every change", () => {
  for (const [what, options, expected] of [
    ["cannot be opened", { openSigner: () => Promise.reject(new Error("gone")) }, Error],
    ["cannot sign", { openSigner: (uri: string) => externalSigner(uri, true) }, Error],
    ["is another key", { openSigner: (uri: string) => externalSigner(uri) }, Error],
  ] as const) {
    test(`does not record a new key that ${what}`, async () => {
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

  test("a key becomes active only after it has produced a signature", async () => {
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

/** Returns the record of a key in an HSM. */
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

describe("close() waits until a signer is closed", () => {
  for (const [name, key, isOpened] of [
    ["that was in use", "a", true],
    ["that was refused because its key is not the published one", "b", false],
  ] as const) {
    test(name, async () => {
      const { promise, resolve } = Promise.withResolvers<void>();
      const signer = await externalSigner("module:a");
      const { keyring } = await keyringOf({ openSigner: async () => ({ ...signer, close: () => promise }) });
      const record = recordOf(publicJwkOf(key), { state: "active", activatedAt: 0 });
      const { unavailable } = await keyring.open([record]);
      assert.ok(isOpened || code("ERR_KEY_MISMATCH")(unavailable.get("x")));
      let isOver = false;
      void keyring.close().then(() => (isOver = true));
      await settled();
      assert.equal(isOver, false);
      resolve();
      await settled();
      assert.equal(isOver, true);
    });
  }
});
