import assert from "node:assert/strict";
import { chmod, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { inspect } from "node:util";
import { describe, test } from "node:test";
import { ConfigError } from "../../src/base/errors.ts";
import { signersOf } from "../../src/service/config/signers.ts";
import { temporaryFolder } from "../support/service.ts";

const secret = "a-secret";
const invalid = { code: "ERR_OPTION_INVALID" } as const;

const rows: { readonly file: string; readonly code: string; readonly says?: RegExp }[] = [
  { file: "", code: "ERR_CONFIG_FORMAT" },
  { file: `{ "vaultTransit": { "token": "${secret}"`, code: "ERR_CONFIG_FORMAT" },
  { file: "null", code: "ERR_CONFIG_FORMAT" },
  { file: `["${secret}"]`, code: "ERR_CONFIG_FORMAT" },
  { file: `{ "vaultTransit": null }`, code: "ERR_CONFIG_FORMAT" },
  { file: `{ "pkcs11": "${secret}" }`, code: "ERR_CONFIG_FORMAT" },
  { file: `{ "awsKms": ["${secret}"] }`, code: "ERR_CONFIG_FORMAT" },
  { file: `{ "vault": {} }`, code: "ERR_OPTION_UNKNOWN" },
  { file: `{ "vaultTransit": { "token": "${secret}" } }`, code: "ERR_OPTION_UNKNOWN" },
  { file: `{ "pkcs11": { "pin": "${secret}" } }`, code: "ERR_OPTION_INVALID" },
  {
    file: `{ "pkcs11": { "clock": "${secret}" } }`,
    ...invalid,
    says: /option "clock" must be an object with the methods now, setTimer/,
  },
  {
    file: `{ "awsKms": { "credentials": { "accessKeyId": "A", "secretAccessKey": "${secret}" } } }`,

    ...invalid,
    says: /option "credentials" must be a function, .* environment variables \(AWS_PROFILE/,
  },
  {
    file: `{ "azureKeyVault": { "credential": { "clientSecret": "${secret}" } } }`,

    ...invalid,
    says: /option "credential" must be an object with the methods getToken.* environment variables \(AZURE_CLIENT_ID/,
  },
  { file: `{ "azureKeyVault": { "credential": "${secret}" } }`, ...invalid, says: /getToken/ },
  { file: `{ "vaultTransit": { "fetch": "${secret}" } }`, ...invalid, says: /option "fetch" / },
  { file: `{ "googleKms": { "clock": { "now": "${secret}" } } }`, ...invalid, says: /option "clock" / },
];

describe("the file of --signers", () => {
  for (const { file, code, says = /./ } of rows) {
    test(`${file === "" ? "an empty file" : file} is ${code} at start, used or not, and nothing of it is repeated`, async (t) => {
      const signers = join(await temporaryFolder(t), "signers.json");
      await writeFile(signers, file);
      await assert.rejects(signersOf({ signers, signerType: "local", destroyExternal: false }), (error) => {
        assert.ok(error instanceof ConfigError);
        assert.equal(error.code, code);
        assert.match(error.message, says);
        assert.ok(!inspect(error, { depth: 9, showHidden: true }).includes(secret));
        return true;
      });
    });
  }

  const secretFiles = [
    ["pkcs11", (file: string) => ({ pin: { file } })],
    ["vaultTransit", (tokenFile: string) => ({ tokenFile })],
  ] as const;
  for (const [member, optionsFor] of secretFiles) {
    test(`${member}: a secret that others can read is a warning, any other file is none`, async (t) => {
      const folder = await temporaryFolder(t);
      const [signers, file] = [join(folder, "signers.json"), join(folder, "a-file")];
      const warnings: unknown[] = [];
      const log = { warn: (...parts: unknown[]) => void warnings.push(parts) };
      const read = async (options: object): Promise<unknown[]> => {
        warnings.length = 0;
        await writeFile(signers, JSON.stringify({ [member]: options }));
        await signersOf({ signers, signerType: "local", destroyExternal: false }, log);
        return warnings;
      };
      assert.deepEqual(await read(optionsFor(file)), []);
      await writeFile(file, secret, { mode: 0o600 });
      assert.deepEqual(await read(optionsFor(file)), []);
      await chmod(file, 0o640);
      const warning = `users other than its owner can read ${file} (mode 0640); fix it with: chmod 600 ${file}`;
      assert.deepEqual(await read(optionsFor(file)), [[{ file }, warning]]);
    });
  }

  test("a pin-source of a URI that others can read is a warning, once", async (t) => {
    const file = join(await temporaryFolder(t), "pin");
    await writeFile(file, secret, { mode: 0o644 });
    await chmod(file, 0o644);
    const warned: unknown[] = [];
    const log = { warn: (fields: unknown) => void warned.push(fields) };
    const { openSigner } = await signersOf({ signers: undefined, signerType: "local", destroyExternal: false }, log);
    for (const key of ["a", "b"]) {
      const uri = `pkcs11:token=t;object=${key}?module-path=/nowhere.so&pin-source=${file}`;
      await assert.rejects(openSigner(uri), "the module is not there");
    }
    assert.deepEqual(warned, [{ file }]);
  });

  test("nothing is connected to before it is used", async () => {
    const { createSigner, destroySigner } = await signersOf({
      signers: undefined,
      signerType: "vault-transit",
      destroyExternal: false,
    });
    assert.equal(typeof createSigner, "function");
    assert.equal(destroySigner, undefined);
  });
});
