import assert from "node:assert/strict";
import { cp, mkdir, symlink, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import { type TestContext, after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { inspect } from "node:util";
import { type JWK, calculateJwkThumbprint, createRemoteJWKSet, jwtVerify } from "jose";
import type { Handle, PKCS11, Template } from "pkcs11js";
import { type Signer, createProvider } from "../../src/index.ts";
import { pkcs11Backend } from "../../src/keys/pkcs11/backend.ts";
import { CKA, CKM, CKO, p256Params } from "../../src/keys/pkcs11/constants.ts";
import type { Pkcs11Options } from "../../src/keys/pkcs11/options.ts";
import { parseKeyUri } from "../../src/keys/pkcs11/uri.ts";
import type { SignerBackend } from "../../src/keys/signer/signer.ts";
import { inputOf } from "../../src/testing/signer-tests.ts";
import { listening } from "../support/listening.ts";
import { temporaryFolder } from "../support/service.ts";
import { type Shim, type SoftHsm, createShim, createSoftHsm, skipWithoutPkcs11 } from "../support/softhsm.ts";

const issuer = "https://op.example";
const input = inputOf("header.claims");
const audience = "api";
const [CKA_VALUE, CKA_VALUE_LEN, CKA_WRAP] = [0x11, 0x161, 0x106] as const;
const [CKM_AES_KEY_GEN, CKM_AES_KEY_WRAP_PAD] = [0x1080, 0x210a] as const;
const thumbprint = (signer: Signer): Promise<string> => calculateJwkThumbprint(signer.publicKey as JWK);

async function setUp(t: TestContext) {
  const token = await createSoftHsm(t);
  const pin = { file: token.pinFile };
  return { token, pin, backend: pkcs11Backend({ modulePath: token.modulePath, pin, token: token.uri }) };
}

/** Keeps a key open, and with it the token's process, which takes a quarter of a second to start. */
async function keepProcess({ token, backend }: { token: SoftHsm; backend: SignerBackend }): Promise<void> {
  const kept = await backend.create({ issuer });
  token.atEnd(() => kept.close());
}

const open = (options: Pkcs11Options, uri: string) => async () => pkcs11Backend(options).open(uri);

/** Checks that a thief with the PIN could not read the private key. */
function assertUnreadable(module: PKCS11, session: Handle, id: Buffer): void {
  const find = (template: object[]): Handle => {
    module.C_FindObjectsInit(session, template as Template);
    const [handle] = module.C_FindObjects(session, 1);
    module.C_FindObjectsFinal(session);
    return handle as Handle;
  };
  const key = find([
    { type: CKA.CLASS, value: CKO.PRIVATE_KEY },
    { type: CKA.ID, value: id },
  ]);
  assert.throws(() => module.C_GetAttributeValue(session, key, [{ type: CKA_VALUE }]), /CKR_ATTRIBUTE_SENSITIVE/);
  const weaker = [
    { type: CKA.SENSITIVE, value: false },
    { type: CKA.EXTRACTABLE, value: true },
  ];
  for (const attribute of weaker) assert.throws(() => module.C_SetAttributeValue(session, key, [attribute]), /CKR_/);
  const wrapping = module.C_GenerateKey(session, { mechanism: CKM_AES_KEY_GEN }, [
    { type: CKA_VALUE_LEN, value: 32 },
    { type: CKA_WRAP, value: true },
  ]);
  const wrap = () => module.C_WrapKey(session, { mechanism: CKM_AES_KEY_WRAP_PAD }, wrapping, key, Buffer.alloc(512));
  assert.throws(wrap, /CKR_KEY_UNEXTRACTABLE/);
}

describe("the PKCS#11 adapter with SoftHSM", { skip: skipWithoutPkcs11() }, () => {
  test("in an HSM that starts empty, every token verifies throughout three rotations, and no key can be read", async (t) => {
    const { token, backend } = await setUp(t);
    const server = createServer((request, response) => provider.node(request, response));
    const url = `http://127.0.0.1:${await listening(t, server)}`;
    const makeEntry = async () => {
      const signer = await backend.create({ issuer: url });
      token.atEnd(() => signer.close());
      return { kid: await thumbprint(signer), signer };
    };
    const keyset = [await makeEntry()];
    const provider = await createProvider({ issuer: url, keyset });
    const sign = () => provider.sign({ sub: "alice", aud: audience }, { lifetimeSeconds: 60 });

    const tokens = [await sign()];
    for (let rotation = 0; rotation < 3; rotation += 1) {
      keyset.unshift(await makeEntry());
      await provider.update({ keyset });
      tokens.push(...(await Promise.all(Array.from({ length: 20 }, sign))));
    }
    const keys = createRemoteJWKSet(new URL(provider.jwksUri));
    const kids = await Promise.all(
      tokens.map(async (token) => (await jwtVerify(token, keys, { issuer: url, audience })).protectedHeader.kid),
    );
    assert.deepEqual([...new Set(kids)], keyset.map(({ kid }) => kid).toReversed());

    for (const { kid, signer } of keyset) {
      const { key } = parseKeyUri(signer.uri);
      assert.equal(key.label, `jwksd ${url} ${kid}`);
      assert.equal(Buffer.from(key.id ?? []).toString("base64url"), kid);
      const id = Buffer.from(key.id ?? []);
      const listed = token.pkcs11Tool("--list-objects", "--type", "privkey", "--id", id.toString("hex"));
      assert.match(listed, /Access: +sensitive, always sensitive, never extractable, local/);
      assert.match(listed, /Usage: +sign\n/);
      const listedPublic = token.pkcs11Tool("--list-objects", "--type", "pubkey", "--id", id.toString("hex"));
      assert.match(listedPublic, /Usage: +verify\n/);
      token.inSession((module, session) => assertUnreadable(module, session, id));
    }
  });

  test("destroying a key also removes its public key, but no other key", async (t) => {
    const { token, backend } = await setUp(t);
    const [one, two] = [await backend.create({ issuer }), await backend.create({ issuer })];
    await one.close();
    const before = Date.now();
    const { destroyedAt } = await backend.destroy(one.uri);
    assert.ok(destroyedAt >= before && destroyedAt <= Date.now());
    await assert.rejects(backend.open(one.uri), { code: "ERR_SIGNER_KEY_STATE" });
    await assert.rejects(backend.destroy(one.uri), { code: "ERR_SIGNER_KEY_STATE" });
    assert.equal((await two.sign(input)).length, 64);
    await two.close();
    const objects = token.pkcs11Tool("--list-objects");
    assert.equal(objects.match(/Public Key Object/g)?.length, 1);
    assert.equal(objects.match(/Private Key Object/g)?.length, 1);
  });

  test("two signers for one key, and keys on two tokens, work side by side", async (t) => {
    const { token, backend } = await setUp(t);
    const created = await backend.create({ issuer });
    const opened = await backend.open(created.uri);
    assert.deepEqual(opened.publicKey, created.publicKey);
    await created.close();
    assert.equal((await opened.sign(input)).length, 64);
    await opened.close();
    await opened.close();
    // The URI alone is enough if it has a module and a PIN source.
    const other = pkcs11Backend({ token: `${token.uri}?module-path=${token.modulePath}&pin-source=${token.pinFile}` });
    const another = await other.create({ issuer });
    await another.close();
    const again = await pkcs11Backend().open(another.uri);
    assert.deepEqual(again.publicKey, another.publicKey);
    await again.close();
  });

  test("still finds a key by its label when another key gets the same label", async (t) => {
    const setup = await setUp(t);
    const { token, backend } = setup;
    await keepProcess(setup);
    const generate = (id: string): void =>
      void token.pkcs11Tool("--keypairgen", "--key-type", "EC:prime256v1", "--label", "login", "--id", id);
    generate("01");
    const uri = `${token.uri};object=login`;
    const query = `?pin-source=${token.pinFile}`;
    const signer = await backend.open(uri + query);
    assert.equal(signer.uri, `${uri};id=%01${query}`);
    await signer.close();
    generate("02");
    await assert.rejects(backend.open(uri + query), { code: "ERR_SIGNER_URI" });
    const again = await backend.open(signer.uri);
    assert.deepEqual([again.publicKey, again.uri], [signer.publicKey, signer.uri]);
    await again.close();
  });

  test("tells key pairs with the same id apart by their labels", async (t) => {
    const setup = await setUp(t);
    const { token, backend } = setup;
    await keepProcess(setup);
    const generate = (label: string, id: string): void =>
      void token.pkcs11Tool("--keypairgen", "--key-type", "EC:prime256v1", "--label", label, "--id", id);
    const uriOf = (label: string): string => `${token.uri};object=${label}`;
    const publicKeyOf = async (label: string): Promise<string> => {
      const signer = await backend.open(uriOf(label));
      await signer.close();
      return thumbprint(signer);
    };
    const publicLabels = (): string[] =>
      [...token.pkcs11Tool("--list-objects", "--type", "pubkey").matchAll(/label: +(?! |jwksd )(.+)/g)].map(
        ([, label = ""]) => label,
      );
    const labels = ["a", "b", "c"];
    for (const label of labels) generate(label, "01");
    const keys = await Promise.all(labels.map(publicKeyOf));
    assert.equal(new Set(keys).size, 3);
    await backend.destroy(uriOf("a"));
    assert.deepEqual(publicLabels().toSorted(), ["b", "c"]);
    assert.deepEqual(await Promise.all(["b", "c"].map(publicKeyOf)), keys.slice(1));
    // Without its own public key object, a key cannot be opened, even if another object has its id.
    token.pkcs11Tool("--delete-object", "--type", "pubkey", "--label", "b");
    await assert.rejects(backend.open(uriOf("b")), { code: "ERR_KEY_FORMAT" });
    await backend.destroy(uriOf("b"));
    assert.deepEqual(publicLabels(), ["c"]);
    // Some tokens label the two keys of a pair differently.
    token.inSession((module, session) => {
      module.C_FindObjectsInit(session, [
        { type: CKA.CLASS, value: CKO.PUBLIC_KEY },
        { type: CKA.LABEL, value: "c" },
      ]);
      const [half] = module.C_FindObjects(session, 1);
      module.C_FindObjectsFinal(session);
      module.C_SetAttributeValue(session, half as Handle, [{ type: CKA.LABEL, value: "c, public" }]);
    });
    assert.equal(await publicKeyOf("c"), keys[2]);
    await backend.destroy(uriOf("c"));
    assert.deepEqual(publicLabels(), []);
  });

  test("rejects keys that cannot sign for a provider", async (t) => {
    const setup = await setUp(t);
    const { token, backend } = setup;
    await keepProcess(setup);
    const generate = (type: string, label: string, ...args: string[]): void =>
      void token.pkcs11Tool("--keypairgen", "--key-type", type, "--label", label, ...args);
    generate("EC:secp384r1", "p384", "--id", "01");
    generate("RSA:2048", "rsa", "--id", "02");
    token.inSession((module, session) => {
      const named = [
        { type: CKA.TOKEN, value: true },
        { type: CKA.LABEL, value: "derive" },
        { type: CKA.ID, value: Buffer.of(3) },
      ];
      const publicTemplate = [...named, { type: CKA.EC_PARAMS, value: Buffer.from(p256Params) }];
      const privateTemplate = [...named, { type: CKA.SIGN, value: false }];
      module.C_GenerateKeyPair(session, { mechanism: CKM.EC_KEY_PAIR_GEN }, publicTemplate, privateTemplate);
    });
    generate("EC:prime256v1", "twice", "--id", "04");
    generate("EC:prime256v1", "twice", "--id", "05");
    generate("EC:prime256v1", "alone", "--id", "06");
    token.pkcs11Tool("--delete-object", "--type", "pubkey", "--id", "06");
    // Another key's public key, with the same id.
    generate("EC:prime256v1", "mixed", "--id", "07");
    generate("EC:prime256v1", "mixed-too", "--id", "08");
    token.pkcs11Tool("--delete-object", "--type", "pubkey", "--id", "07");
    const point = join(token.folder, "point");
    token.pkcs11Tool("--read-object", "--type", "pubkey", "--id", "08", "--output-file", point);
    token.pkcs11Tool("--write-object", point, "--type", "pubkey", "--id", "07", "--label", "mixed");
    const rows: [key: string, code: string][] = [
      ["object=p384", "ERR_KEY_NOT_P256"],
      ["object=rsa", "ERR_KEY_NOT_P256"],
      ["object=derive", "ERR_KEY_PURPOSE"],
      ["object=twice", "ERR_SIGNER_URI"],
      ["object=alone", "ERR_KEY_FORMAT"],
      ["object=mixed", "ERR_KEY_MISMATCH"],
      ["object=none", "ERR_SIGNER_KEY_STATE"],
      ["object=p384;id=%07", "ERR_SIGNER_KEY_STATE"],
    ];
    for (const [key, code] of rows) await assert.rejects(backend.open(`${token.uri};${key}`), { code }, key);
    await assert.rejects(backend.open(`${token.uri};object=p384`), /: the key with object "p384" on the token "[^"]+"/);
    const one = await backend.open(`${token.uri};object=twice;id=%05`);
    await one.close();
  });

  test("rejects invalid options and URIs immediately", async (t) => {
    const { token, pin, backend } = await setUp(t);
    const { modulePath } = token;
    const uri = `${token.uri};object=k`;
    const { label } = parseKeyUri(uri).token;
    const notAModule = join(token.folder, "not-a-module.so");
    await writeFile(notAModule, "text");
    const invalid = "ERR_OPTION_INVALID";
    const wrong: [options: object, code: string, message?: RegExp][] = [
      [{ modulePath: null }, "ERR_SIGNER_URI", /pkcs11\.modulePath .* "module-path"/],
      [{ modulePath: "softhsm" }, invalid],
      [{ modulePath: "/missing.so" }, invalid, / \/missing\.so: the file does not exist$/],
      [{ modulePath: notAModule }, invalid, /\/not-a-module\.so: it is not a PKCS#11 module /],
      [{ sessions: 0 }, invalid],
      [{ timeoutMs: 2 ** 31 }, invalid],
      [{ environment: "VENDOR" }, invalid],
      [{ environment: ["VENDOR_*"] }, invalid],
      [{ environment: ["JWKSD_WRAPPING_KEYS"] }, invalid],
      [{ pin: { environment: "PIN" }, environment: ["PIN"] }, invalid],
      [{ token: "jwksd" }, "ERR_SIGNER_URI"],
      [
        { token: uri },
        "ERR_SIGNER_URI",
        /must name only the token for new keys, and not a key; remove "object" and "id"/,
      ],
    ];
    const otherPath = new RegExp(`in the URI is /other\\.so, but the configured modulePath is ${modulePath};`);
    const otherToken = new RegExp(
      `the token "other" is not present; tokens that are present: "${label}" \\(serial "[0-9a-f]+"\\);`,
    );
    const uris: [uri: string, code: string, message?: RegExp][] = [
      [`${uri}?module-path=/other.so`, "ERR_SIGNER_URI", otherPath],
      [`${uri}?pin-value=1234`, "ERR_SIGNER_URI"],
      ["pkcs11:token=other;object=k", "ERR_SIGNER_UNAVAILABLE", otherToken],
      ["pkcs11:serial=0;slot-id=7;object=k", "ERR_SIGNER_UNAVAILABLE", /with serial "0" and slot-id 7 is not present/],
      [uri, "ERR_SIGNER_KEY_STATE", /no private key with object "k"$/],
      [`${uri};id=%0a`, "ERR_SIGNER_KEY_STATE", /with object "k" and id %0A$/],
    ];
    const rows: (readonly [attempt: () => Promise<unknown>, code: string, message?: RegExp | undefined])[] = [
      ...wrong.map(([more, code, message]) => [open({ modulePath, pin, ...more }, uri), code, message] as const),
      ...uris.map(([uri, code, message]) => [open({ modulePath, pin }, uri), code, message] as const),
      [async () => pkcs11Backend({ modulePath, pin }).create({ issuer }), invalid, /pkcs11\.token in /],
      [async () => backend.open(uri, { signal: AbortSignal.abort() }), "ERR_SIGNER_ABORTED"],
      [async () => backend.create({ issuer, signal: AbortSignal.abort() }), "ERR_SIGNER_ABORTED"],
      [async () => backend.destroy(uri, { signal: AbortSignal.abort() }), "ERR_SIGNER_ABORTED"],
    ];
    for (const [attempt, code, message = /./] of rows) {
      await assert.rejects(attempt(), (error: unknown) => {
        assert.equal((error as { code?: string }).code, code, inspect(error));
        assert.match((error as Error).message, message);
        return true;
      });
    }
  });

  test("names the package to install if pkcs11js is missing", async (t) => {
    const folder = await temporaryFolder(t);
    const root = fileURLToPath(new URL("../../", import.meta.url));
    for (const part of ["base", "keys", "package.json"])
      await cp(join(root, "src", part), join(folder, "src", part), { recursive: true });
    await mkdir(join(folder, "node_modules"));
    await symlink(join(root, "node_modules/jose"), join(folder, "node_modules/jose"));
    const copy = (await import(join(folder, "src/keys/pkcs11/backend.ts"))) as { pkcs11Backend: typeof pkcs11Backend };
    const backend = copy.pkcs11Backend({ modulePath: "/module.so", pin: { environment: "PIN" } });
    await assert.rejects(backend.open("pkcs11:token=a;object=k"), {
      name: "ConfigError",
      code: "ERR_PACKAGE_MISSING",
      message: /npm install pkcs11js/,
    });
  });
});

describe("the PKCS#11 adapter with tokens that have limited capabilities", { skip: skipWithoutPkcs11("cc") }, () => {
  let token: SoftHsm;
  let shim: Shim;
  let backend: SignerBackend;
  const ends: (() => Promise<void>)[] = [];
  before(async () => {
    token = await createSoftHsm({ after: (end) => void ends.push(end) });
    shim = createShim(token);
    backend = pkcs11Backend({ modulePath: shim.modulePath, pin: { file: token.pinFile }, token: token.uri });
  });
  after(async () => {
    for (const end of ends) await end();
  });

  test("destroys an unusable key", async () => {
    shim.control("C_Sign corrupt");
    await assert.rejects(backend.create({ issuer }), { code: "ERR_KEY_MISMATCH" });
    assert.doesNotMatch(token.pkcs11Tool("--list-objects"), /Key Object/);
    shim.control();
    await keepProcess({ token, backend });
    shim.control("C_GenerateKeyPair fail 0x31");
    await assert.rejects(backend.create({ issuer }), { code: "ERR_SIGNER_THROTTLED" });
    shim.control("C_GenerateKeyPair fail 0xE2");
    await assert.rejects(backend.create({ issuer }), { code: "ERR_SIGNER_UNAUTHORIZED" });
  });

  test("keeps a key's original name on a token that cannot rename keys", async () => {
    shim.control("C_SetAttributeValue fail 0x54");
    const signer = await backend.create({ issuer });
    assert.equal((await signer.sign(input)).length, 64);
    await signer.close();
    const again = await backend.open(signer.uri);
    assert.deepEqual(again.publicKey, signer.publicKey);
    await again.close();
  });

  test("uses only as many sessions as a token allows", async () => {
    // A separate backend, which starts the module again.
    const { modulePath } = shim;
    shim.control("C_OpenSession most 4");
    const signer = await pkcs11Backend({ modulePath, pin: { file: token.pinFile }, token: token.uri }).create({
      issuer,
    });
    const signatures = await Promise.all(Array.from({ length: 20 }, () => signer.sign(input)));
    assert.equal(signatures.length, 20);
    await signer.close();
  });
});
