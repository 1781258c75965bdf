import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { describe, test } from "node:test";
import {
  type EncryptionEntry,
  type JwksdErrorCode,
  type ProviderUpdate,
  type Provider,
  type SigningEntry,
  createProvider,
  localSigner,
} from "../../src/index.ts";
import { ecKey, withoutPrivate } from "../support/keys.ts";
import { refusal } from "../support/refusal.ts";

const signing = async (...kids: string[]): Promise<SigningEntry[]> =>
  Promise.all(kids.map(async (kid) => ({ kid, signer: await localSigner(ecKey(kid)) })));
const encryption = (...kids: string[]): EncryptionEntry[] =>
  kids.map((kid) => ({ kid, publicKey: withoutPrivate(ecKey(kid)) }));

const provide = async (keyset: SigningEntry[], encryptionKeyset?: EncryptionEntry[]): Promise<Provider> =>
  createProvider({ issuer: "https://op.example", keyset, encryptionKeyset });

interface Served {
  readonly kids: string;
  readonly text: string;
  readonly etag: string | null;
}

async function served({ fetch, jwksUri }: Provider): Promise<Served> {
  const response = await fetch(new Request(jwksUri));
  const text = await response.text();
  assert.equal(response.headers.get("etag"), `"${createHash("sha256").update(text).digest("hex")}"`);
  const { keys } = JSON.parse(text) as { keys: { kid: string }[] };
  return { kids: keys.map(({ kid }) => kid).join(" "), text, etag: response.headers.get("etag") };
}

const changes: [name: string, change: ProviderUpdate, kids: string][] = [
  ["the signing keys", { keyset: await signing("b", "a") }, "b a e"],
  ["the encryption keys", { encryptionKeyset: encryption("f") }, "a f"],
  ["both", { keyset: await signing("b"), encryptionKeyset: encryption("f", "g") }, "b f g"],
  ["an encryption key becomes a signing key", { keyset: await signing("e"), encryptionKeyset: [] }, "e"],
  ["no encryption keys", { encryptionKeyset: [] }, "a"],
  ["nothing", {}, "a e"],
  ["null, treated as nothing", { keyset: null, encryptionKeyset: undefined }, "a e"],
];

describe("endpoint specification, section 2, rule 4: the keysets rotate independently; update replaces only the given ones", () => {
  for (const [name, change, kids] of changes) {
    test(name, async () => {
      const provider = await provide(await signing("a"), encryption("e"));
      await provider.update(change);
      assert.equal((await served(provider)).kids, kids);
    });
  }
});

const refused: [code: JwksdErrorCode, name: string, change: unknown][] = [
  ["ERR_KEYSET_EMPTY", "no signing key", { keyset: [], encryptionKeyset: encryption("f") }],
  ["ERR_KID_DUPLICATE", "one kid twice", { keyset: await signing("b", "b") }],
  ["ERR_KEY_DUPLICATE", "a kid and a key from the keyset that stays", { encryptionKeyset: encryption("a") }],
  [
    "ERR_KEY_DUPLICATE",
    "a key from the keyset that stays",
    { encryptionKeyset: [{ ...encryption("a")[0], kid: "x" }] },
  ],
  [
    "ERR_KEY_FORMAT",
    "one invalid entry among many",
    { keyset: await signing("b"), encryptionKeyset: [...encryption("f"), { kid: "g" }] },
  ],
  ["ERR_OPTION_UNKNOWN", "another option", { keyset: await signing("b"), issuer: "https://other.example" }],
  ["ERR_OPTION_INVALID", "a keyset that is not an array", { keyset: {}, encryptionKeyset: encryption("f") }],
];

describe("an update that breaks a rule changes nothing", () => {
  for (const [code, name, change] of refused) {
    test(`${code}: ${name}`, async () => {
      const provider = await provide(await signing("a"), encryption("e"));
      const before = await served(provider);
      await refusal(() => provider.update(change as ProviderUpdate), code);
      assert.deepEqual(await served(provider), before);
      // No part of it is left for the next update.
      await provider.update({});
      assert.deepEqual(await served(provider), before);
    });
  }
});

test("an empty update changes nothing, and one that is not an object is rejected", async () => {
  const provider = await provide(await signing("a"));
  const before = await served(provider);
  await provider.update(null as never);
  assert.deepEqual(await served(provider), before);
  await refusal(() => provider.update(5 as never), "ERR_OPTION_INVALID");
});

const tick = (): Promise<string> => new Promise((resolve) => setImmediate(resolve, "tick"));

test("a request during an update gets either the whole old document or the whole new one; once update() resolves, requests get the new one", async () => {
  const provider = await provide(await signing("a"), encryption("e"));
  const old = await served(provider);
  const updated = provider.update({ keyset: await signing("b", "a"), encryptionKeyset: encryption("f", "g") });
  const seen: Served[] = [await served(provider)];
  while ((await Promise.race([updated, tick()])) === "tick") seen.push(await served(provider));
  const renewed = await served(provider);
  assert.equal(renewed.kids, "b a f g");
  assert.deepEqual(seen[0], old);
  for (const { text } of seen) assert.ok(text === old.text || text === renewed.text, text);
});

describe("later changes to objects that were passed in have no effect", () => {
  test("after createProvider: options, arrays and their entries", async () => {
    const keyset = await signing("a", "b");
    const encryptionKeyset = encryption("e");
    const endpoints = { jwks: "/jwks" };
    const options = { issuer: "https://op.example", keyset, encryptionKeyset, endpoints };
    const creating = createProvider(options);
    spoil();
    const provider = await creating;
    const before = await served(provider);
    assert.equal(before.kids, "a b e");
    spoil();
    // An update of one keyset keeps the other as it was passed.
    await provider.update({ keyset: await signing("a", "b") });
    await provider.update({ encryptionKeyset: encryption("e") });
    assert.deepEqual(await served(provider), before);

    function spoil(): void {
      keyset.pop();
      for (const entry of [...keyset, ...encryptionKeyset])
        Object.assign(entry, { kid: "spoiled", alg: "ECDH-ES+A128KW" });
      encryptionKeyset.push(...encryption("more"));
      Object.assign(endpoints, { jwks: "/spoiled" });
      Object.assign(options, { issuer: "https://spoiled.example", keyset: [] });
    }
  });

  const deep: [name: string, spoil: (entry: { publicKey: object; notAfter: Date }) => unknown][] = [
    ["the JWK of an encryption key", ({ publicKey }) => Object.assign(publicKey, withoutPrivate(ecKey("spoiled")))],
    ["the Date of an encryption key", ({ notAfter }) => notAfter.setTime(0)],
  ];
  for (const [name, spoil] of deep) {
    test(`after createProvider: ${name}`, async () => {
      const entry = { kid: "e", publicKey: withoutPrivate(ecKey("e")), notAfter: new Date(8e15) };
      const provider = await provide(await signing("a"), [entry]);
      const before = await served(provider);
      assert.equal(before.kids, "a e");
      spoil(entry);
      await provider.update({ keyset: await signing("a") });
      assert.deepEqual(await served(provider), before);
    });
  }

  test("after update", async () => {
    const provider = await provide(await signing("a"));
    const keyset = await signing("b", "c");
    const updating = provider.update({ keyset });
    keyset.pop();
    keyset.forEach((entry) => Object.assign(entry, { kid: "spoiled" }));
    await updating;
    assert.equal((await served(provider)).kids, "b c");
  });
});

/** Calls the Node adapter as Express, Connect and plain `node:http` do. */
function viaNode(provider: Provider, request: { url: string; originalUrl?: string }, withNext: boolean) {
  const written: unknown[] = [];
  let nexts = 0;
  const response = {
    headersSent: false,
    setHeader: () => {},
    writeHead: (status: number) => written.push(status),
    end: () => written.push("end"),
  };
  provider.node({ method: "GET", headers: {}, ...request }, response, withNext ? () => (nexts += 1) : undefined);
  return { written, nexts };
}

describe("the Node adapter in a framework", () => {
  const answered = { written: [200, "end"], nexts: 0 };
  const passedOn = { written: [], nexts: 1 };
  const notFound = { written: [404, "end"], nexts: 0 };
  const rows: [
    name: string,
    request: { url: string; originalUrl?: string },
    withNext: boolean,
    typeof answered | typeof passedOn,
  ][] = [
    ["plain", { url: "/oidc/jwks" }, false, answered],
    ["plain, another path", { url: "/x" }, false, notFound],
    ["middleware", { url: "/oidc/jwks", originalUrl: "/oidc/jwks" }, true, answered],
    ["middleware, another path is passed on", { url: "/x", originalUrl: "/x" }, true, passedOn],
    ["mounted at the prefix", { url: "/jwks", originalUrl: "/oidc/jwks" }, true, answered],
    ["mounted at the issuer's path and the prefix", { url: "/jwks", originalUrl: "/tenant/oidc/jwks" }, true, answered],
    ["mounted elsewhere than the discovery document says", { url: "/jwks", originalUrl: "/x/jwks" }, true, passedOn],
    ["a query", { url: "/jwks?a", originalUrl: "/oidc/jwks?a" }, true, answered],
  ];
  for (const [name, request, withNext, expected] of rows) {
    test(name, async () => {
      const provider = await createProvider({
        issuer: "https://op.example/tenant",
        mountPrefix: "/oidc",
        keyset: await signing("a"),
      });
      assert.deepEqual(viaNode(provider, request, withNext), expected);
    });
  }
});
