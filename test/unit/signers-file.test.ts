import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { inspect } from "node:util";
import { describe, test } from "node:test";
import { ConfigError } from "../../src/errors.ts";
import { signersOf } from "../../src/server/signers.ts";
import { temporaryFolder } from "../support/service.ts";

const secret = "a-secret";

const rows: { readonly file: string; readonly type?: string; readonly code: string }[] = [
  { file: "", code: "ERR_CONFIG_FORMAT" },
  { file: `{ "vaultTransit": { "token": "${secret}"`, code: "ERR_CONFIG_FORMAT" },
  { file: "null", code: "ERR_CONFIG_FORMAT" },
  { file: `["${secret}"]`, code: "ERR_CONFIG_FORMAT" },
  { file: `{ "vaultTransit": null }`, code: "ERR_CONFIG_FORMAT" },
  { file: `{ "pkcs11": "${secret}" }`, code: "ERR_CONFIG_FORMAT" },
  { file: `{ "awsKms": ["${secret}"] }`, code: "ERR_CONFIG_FORMAT" },
  { file: `{ "vault": {} }`, type: "vault-transit", code: "ERR_OPTION_UNKNOWN" },
  { file: `{ "vaultTransit": { "token": "${secret}" } }`, type: "vault-transit", code: "ERR_OPTION_UNKNOWN" },
  { file: `{ "pkcs11": { "pin": "${secret}" } }`, type: "pkcs11", code: "ERR_OPTION_INVALID" },
];

describe("the file of --signers", () => {
  for (const { file, type = "local", code } of rows) {
    test(`${file === "" ? "an empty file" : file} is ${code} at start, and nothing of it is repeated`, async (t) => {
      const signers = join(await temporaryFolder(t), "signers.json");
      await writeFile(signers, file);
      await assert.rejects(signersOf({ signers, signerType: type, destroyExternal: false }), (error) => {
        assert.ok(error instanceof ConfigError);
        assert.equal(error.code, code);
        assert.ok(!inspect(error, { depth: 9, showHidden: true }).includes(secret));
        return true;
      });
    });
  }

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
