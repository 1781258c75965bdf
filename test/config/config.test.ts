import assert from "node:assert/strict";
import { writeFile, chmod } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { inspect } from "node:util";
import { nearest } from "../../src/base/closest-name.ts";
import { ConfigError } from "../../src/base/errors.ts";
import { readJsonObject } from "../../src/service/config/json-file.ts";
import { signersOf } from "../../src/service/config/signers.ts";
import { type RunningServer, startHttpServer } from "../../src/service/listen/http-server.ts";
import { refusal } from "../support/refusal.ts";
import { temporaryFolder } from "../support/service.ts";
import { exchange, parseReplies } from "../support/wire.ts";

const good = [
  "op.example",
  "OP.example:443",
  "op.example:",
  "127.0.0.1:9900",
  "[::1]",
  "[2001:db8::7]:9900",
  "[v1.future:address]",
  "a-b_c.~!$&'()*+,;=",
  "xn--bcher-kva.example",
  "%C3%BC.example",
  // The Host of a target without an authority (RFC 9112 section 3.2).
  "",
];
const bad = [
  "a b",
  "a/b",
  "a@b",
  "user:password@op.example",
  "op.example:port",
  "op.example:80:80",
  "::1",
  "[::1",
  "[op.example]",
  "[fe80::1%25eth0]",
  "[::1]x",
  "http://op.example",
  "op.example?",
  "a#b",
  "a\\b",
  '"a"',
  "%zz",
  "\xfc.example",
];
const line = (name: string, value: string): string => `${name}: ${value}\r\n`;
const hosts: readonly (readonly [name: string, lines: string, status: number, version?: string])[] = [
  ...good.map((host) => [`Host ${JSON.stringify(host)}`, line("Host", host), 200] as const),
  ...bad.map((host) => [`Host ${JSON.stringify(host)}`, line("Host", host), 400] as const),
  ["no Host", "", 400],
  ["two Host fields", line("Host", "a") + line("Host", "b"), 400],
  ["the same Host field twice", line("Host", "a") + line("host", "a"), 400],
  ["two empty Host fields", line("Host", "") + line("Host", ""), 400],
  ["an invalid Host with an expectation", line("Host", "a b") + line("Expect", "more"), 400],
  ["HTTP/1.0 without Host", "", 200, "1.0"],
  ["HTTP/1.0 with an invalid Host", line("Host", "a b"), 400, "1.0"],
  ["HTTP/1.0 with two Host fields", line("Host", "a") + line("Host", "b"), 400, "1.0"],
];

describe("a request must have one valid Host field (RFC 9112 section 3.2)", { timeout: 20_000 }, () => {
  let server: RunningServer;
  before(async () => {
    const address = { host: "127.0.0.1", port: 0 };
    server = await startHttpServer(address, () => (_request, response) => {
      response.setHeader("Content-Length", 2);
      response.end("ok");
    });
  });
  after(() => server.stop());

  for (const [name, lines, status, version = "1.1"] of hosts) {
    test(`${name}: ${status}`, async () => {
      const sent = `GET /jwks HTTP/${version}\r\n${lines}Connection: close\r\n\r\n`;
      const [reply] = parseReplies(await exchange(server.port, sent), ["GET"]);
      assert.equal(reply?.status, status);
      const isRefused = status === 400;
      assert.equal(reply.headers["content-type"], isRefused ? "application/problem+json" : undefined);
      assert.equal(reply.headers["cache-control"], isRefused ? "no-store" : undefined);
      assert.equal(reply.body.includes("Host"), isRefused);
    });
  }

  test("CONNECT with an invalid Host: 400", async () => {
    const [reply] = parseReplies(await exchange(server.port, "CONNECT a:1 HTTP/1.1\r\nHost: a b\r\n\r\n"), ["GET"]);
    assert.equal(reply?.status, 400);
  });
});

describe("the error for a file that is not JSON gives the line and column but quotes nothing from the file", () => {
  const rows: readonly (readonly [name: string, text: string, place: string])[] = [
    ["incomplete", '{\n  "secret": 80', "; check line 2, column 15"],
    ["incomplete after a comma", '{"a": [1,', "; it is incomplete"],
    ["empty", "", "; it is incomplete"],
    ["an extra comma", '{\n  "secret": 80,\n}', "; check line 3, column 1"],
    ["a missing comma", '{\n  "port": 80\n  "secret": 1}', "; check line 3, column 3"],
    ["a value without quotes", '{"a": 1,\n "issuer": secret}', ""],
    ["a name without quotes", '{"a": 1,\n secret: 1}', "; check line 2, column 2"],
    ["a comment", '{"a": 1, // secret\n "b": 2}', "; check line 1, column 10"],
    ["single quotes", "{'secret': 1}", "; check line 1, column 2"],
    ["an unclosed string", '{"a": "secret\n}', "; check line 1, column 14"],
    ["text after the end", '{"a": 1}\r\nsecret', "; check line 2, column 1"],
    ["YAML", "secret: 1\n", ""],
    ["text that looks like a position", "x (line 91 column 82)", ""],
    ["a number with a leading zero", '{"port": 0080}', "; check line 1, column 11"],
  ];
  for (const [name, text, place] of rows) {
    test(name, async (t) => {
      const file = join(await temporaryFolder(t), "jwksd.json");
      await writeFile(file, text);
      const error = await refusal(() => readJsonObject(file, "the configuration file"), "ERR_CONFIG_FORMAT");
      assert.equal(error.message, `the configuration file ${file} is not JSON${place}`);
      assert.equal(error.cause, undefined);
    });
  }
});

const known = ["port", "host", "issuer", "jwksPath", "timeoutSeconds"];

for (const [given, expected] of [
  ["port", "port"],
  ["prot", "port"],
  ["hos", "host"],
  ["ussuer", "issuer"],
  ["jwks_path", "jwksPath", "timeoutSeconds"],
  ["timeout", "timeoutSeconds"],
  ["", undefined],
  ["banana", undefined],
  ["issuer_of_tokens", undefined],
  // A comparison of each letter with each name would take minutes.
  ["x".repeat(50_000_000), undefined],
] as const) {
  test(`${JSON.stringify(given.slice(0, 40))} is ${expected === undefined ? "not recognized" : `recognized as ${expected}`}`, () => {
    assert.equal(nearest(given, known), expected);
  });
}

const secret = "a-secret";
const invalid = { code: "ERR_OPTION_INVALID" } as const;

const files: { readonly file: string; readonly code: string; readonly message?: RegExp }[] = [
  { file: "", code: "ERR_CONFIG_FORMAT" },
  { file: `{ "vaultTransit": { "token": "${secret}"`, code: "ERR_CONFIG_FORMAT" },
  { file: "null", code: "ERR_CONFIG_FORMAT" },
  { file: `["${secret}"]`, code: "ERR_CONFIG_FORMAT" },
  { file: `{ "pkcs11": "${secret}" }`, code: "ERR_OPTION_INVALID" },
  { file: `{ "vault": {} }`, code: "ERR_OPTION_UNKNOWN" },
  { file: `{ "vaultTransit": { "token": "${secret}" } }`, code: "ERR_OPTION_UNKNOWN" },
  { file: `{ "pkcs11": { "pin": "${secret}" } }`, code: "ERR_OPTION_INVALID" },
  { file: `{ "pkcs11": { "clock": "${secret}" } }`, code: "ERR_OPTION_UNKNOWN", message: /"clock" signer option/ },
  {
    file: `{ "awsKms": { "credentials": { "accessKeyId": "A", "secretAccessKey": "${secret}" } } }`,

    ...invalid,
    message: /the "credentials" signer option must be a function, .* environment variables \(AWS_PROFILE/,
  },
  {
    file: `{ "azureKeyVault": { "credential": { "clientSecret": "${secret}" } } }`,

    ...invalid,
    message:
      /the "credential" signer option must be an object with the methods getToken.* environment variables \(AZURE_CLIENT_ID/,
  },
  { file: `{ "azureKeyVault": { "credential": "${secret}" } }`, ...invalid, message: /getToken/ },
  { file: `{ "vaultTransit": { "fetch": "${secret}" } }`, ...invalid, message: /"fetch" signer option / },
  {
    file: `{ "googleKms": { "clock": { "now": "${secret}" } } }`,
    code: "ERR_OPTION_UNKNOWN",
    message: /"clock" signer option/,
  },
];

describe("the --signers file", () => {
  for (const { file, code, message = /./ } of files) {
    test(`${file === "" ? "an empty file" : file} causes ${code} at startup, even if unused, and is not quoted in any message`, async (t) => {
      const signers = join(await temporaryFolder(t), "signers.json");
      await writeFile(signers, file);
      await assert.rejects(signersOf({ signers, signerType: "local", destroyExternal: false }), (error) => {
        assert.ok(error instanceof ConfigError);
        assert.equal(error.code, code);
        assert.match(error.message, message);
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
    test(`${member}: causes a warning only if other users can read the secret file`, async (t) => {
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
      const warning = `users other than the owner can read ${file} (mode 0640); fix it with: chmod 600 ${file}`;
      assert.deepEqual(await read(optionsFor(file)), [[{ file }, warning]]);
    });
  }

  test("causes a single warning if other users can read a URI's pin-source", async (t) => {
    const file = join(await temporaryFolder(t), "pin");
    await writeFile(file, secret, { mode: 0o644 });
    await chmod(file, 0o644);
    const warned: unknown[] = [];
    const log = { warn: (fields: unknown) => void warned.push(fields) };
    const { openSigner } = await signersOf({ signers: undefined, signerType: "local", destroyExternal: false }, log);
    for (const key of ["a", "b"]) {
      const uri = `pkcs11:token=t;object=${key}?module-path=/nowhere.so&pin-source=${file}`;
      await assert.rejects(openSigner(uri), "the module is missing");
    }
    assert.deepEqual(warned, [{ file }]);
  });

  test("no connection is opened until a signer is used", async () => {
    const { createSigner, destroySigner } = await signersOf({
      signers: undefined,
      signerType: "vault-transit",
      destroyExternal: false,
    });
    assert.equal(typeof createSigner, "function");
    assert.equal(destroySigner, undefined);
  });
});
