import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";
import { describe, test, type TestContext } from "node:test";
import { calculateJwkThumbprint } from "jose";
import { ConfigError } from "../../src/base/errors.ts";
import { Command } from "../../src/cli/command.ts";
import { addSettings, settingsFrom } from "../../src/cli/setting-flags.ts";
import { guardDefinitions } from "../../src/service/config/guard-setting-definitions.ts";
import {
  type Definitions,
  type SettingName,
  flagName,
  settingDefinitions,
  variableName,
} from "../../src/service/config/setting-definitions.ts";
import { collectSettings, resolveSettings } from "../../src/service/config/settings.ts";
import { ecKey, named } from "../support/keys.ts";
import { Client, kidsIn } from "../support/load.ts";
import { newWrappingKey, wrappingKeyOf } from "../support/managed.ts";
import {
  freePort,
  keySetText,
  runCli,
  startService,
  temporaryFolder,
  cliDone,
  cliRefused,
} from "../support/service.ts";

const timeout = 180_000;

/** A setting as a flag (a string, or `true` for a flag without a value), as a variable and in the file, each with the expected value. */
interface Sample {
  readonly flag: readonly [given: string | true, expected: unknown];
  readonly variable: readonly [given: string, expected: unknown];
  readonly member: unknown;
}

const textSample: Sample = { flag: ["a", "a"], variable: ["2", "2"], member: "c" };
/** The shortest and longest durations that the schema accepts; the policy has further limits. */
const durationSample: Sample = { flag: ["0", 0], variable: ["1000000000", 1_000_000_000], member: 30 };
const switchSample: Sample = { flag: [true, true], variable: ["false", false], member: true };
const samples: Readonly<Record<SettingName, Sample>> = {
  host: textSample,
  port: { flag: ["0", 0], variable: ["65535", 65_535], member: 3 },
  issuer: {
    flag: ["https://a.example", "https://a.example"],
    variable: ["http://localhost", "http://localhost"],
    member: "https://c.example",
  },
  mountPrefix: textSample,
  jwksPath: textSample,
  keys: textSample,
  store: { flag: ["sqlite:a", "sqlite:a"], variable: ["sqlite:/b", "sqlite:/b"], member: "sqlite:c" },
  wrappingKeyFile: textSample,
  rotateEveryDays: durationSample,
  announceForSeconds: durationSample,
  maxTokenLifetimeSeconds: durationSample,
  clockSkewSeconds: durationSample,
  cacheSlackSeconds: durationSample,
  maxStaleSeconds: durationSample,
  replicaName: textSample,
  readyWithoutStore: switchSample,
  requireStore: switchSample,
  maxSavedSetSeconds: durationSample,
  signSocket: textSample,
  signConfig: textSample,
  encryptionKeys: textSample,
  data: textSample,
  signerType: { flag: ["local", "local"], variable: ["aws-kms", "aws-kms"], member: "vault-transit" },
  signers: textSample,
  destroyExternal: switchSample,
  rotationMode: switchSample,
  reusePort: switchSample,
  metadata: textSample,
  noDiscovery: switchSample,
  noCors: switchSample,
  admin: { flag: ["off", "off"], variable: ["127.0.0.1:0", "127.0.0.1:0"], member: "[::1]:65535" },
  logLevel: { flag: ["debug", "debug"], variable: ["silent", "silent"], member: "error" },
  jsonLogs: switchSample,
};

const guardSamples: Readonly<Record<keyof typeof guardDefinitions, Sample>> = {
  issuer: textSample,
  audience: textSample,
  scope: textSample,
  for: { flag: ["nginx", "nginx"], variable: ["caddy", "caddy"], member: "traefik" },
  listen: { flag: ["127.0.0.1:0", "127.0.0.1:0"], variable: ["/run/a.sock", "/run/a.sock"], member: "[::1]:65535" },
  allowRemoteProxies: switchSample,
  socketGroup: textSample,
  admin: samples.admin,
  replayStore: {
    flag: ["redis://a", "redis://a"],
    variable: ["redis://u:p@b:1", "redis://u:p@b:1"],
    member: "rediss://c",
  },
  nonceSecretFile: textSample,
  certificateHeader: { flag: ["a", "a"], variable: ["Client-Cert", "Client-Cert"], member: "x2" },
  logLevel: samples.logLevel,
  jsonLogs: samples.jsonLogs,
};

/** The settings of each table, with their samples. */
const tables: readonly (readonly [command: string, rows: Definitions, samples: Readonly<Record<string, Sample>>])[] = [
  ["serve", settingDefinitions, samples],
  ["guard", guardDefinitions, guardSamples],
];

describe("flags take precedence over the environment, the environment over the file, and the file over defaults", () => {
  for (const [command, name, row, sample] of tables.flatMap(([command, rows, samples]) =>
    Object.entries(rows).map(([name, row]) => [command, name, row, samples[name]] as const),
  )) {
    test(`${command}: ${name}`, async (t) => {
      assert.ok(sample, `samples has no row "${name}"`);
      const { flag, variable, member } = sample;
      const configFile = join(await temporaryFolder(t), "jwksd.json");
      await writeFile(configFile, JSON.stringify({ [name]: member }));
      const flags = { [name]: flag[0] };
      const environment = { [variableName(name)]: variable[0] };
      const rows = [
        { sources: { flags, environment, configFile }, expected: flag[1] },
        { sources: { flags, environment: {}, configFile }, expected: flag[1] },
        { sources: { flags: {}, environment, configFile }, expected: variable[1] },
        { sources: { flags: {}, environment: {}, configFile }, expected: member },
        { sources: { flags: {}, environment: {} }, expected: row.fallback },
      ];
      for (const { sources, expected } of rows) {
        const { settings } = await collectSettings({ [name]: row }, sources, command);
        assert.equal(settings[name], expected);
      }
    });
  }

  test("1 means true, and 0 means false", async () => {
    const environment = { JWKSD_NO_CORS: "1", JWKSD_JSON_LOGS: "0" };
    const { noCors, jsonLogs } = await resolveSettings({ flags: {}, environment });
    assert.deepEqual({ noCors, jsonLogs }, { noCors: true, jsonLogs: false });
  });

  test("wrapping keys come only from the environment", async (t) => {
    const environment = { JWKSD_WRAPPING_KEYS: "secret" };
    assert.equal((await resolveSettings({ flags: {}, environment })).wrappingKeys, "secret");
    assert.equal(
      (await resolveSettings({ flags: { wrappingKeys: "secret" }, environment: {} })).wrappingKeys,
      undefined,
    );
    const configFile = join(await temporaryFolder(t), "jwksd.json");
    await writeFile(configFile, '{"wrappingKeys": "secret"}');
    await assert.rejects(resolveSettings({ flags: {}, environment: {}, configFile }), (error) => {
      assert.ok(error instanceof ConfigError && error.code === "ERR_OPTION_UNKNOWN", String(error));
      assert.ok(!error.message.includes("secret"));
      return true;
    });
  });

  test("null in the file is treated as unset", async (t) => {
    const configFile = join(await temporaryFolder(t), "jwksd.json");
    await writeFile(configFile, '{"port": null}');
    assert.equal((await resolveSettings({ flags: {}, environment: {}, configFile })).port, 9900);
  });
});

describe("an invalid value is rejected with a message that names its source and the rule but not the value, which may be a secret", () => {
  const notEmpty = "must be a non-empty string";
  const host = "must be an IP address without brackets, or a host name";
  const port = "must be a whole number from 0 to 65535";
  const seconds = "must be a whole number from 0 to 1000000000";
  const trueOrFalse = "must be true or false";
  const address = 'must be HOST:PORT or "off"';
  const level = "must be debug, info, warn, error or silent";
  const path = "must be a path, not the contents of a file";
  const store = `must be ${settingDefinitions.store.rule.must}`;
  const secret = "91827364";
  const object = { pin: secret };
  const contents = [
    `{"d":"${secret}"}`,
    ` [{"d":"${secret}"}]`,
    `-----BEGIN ${secret}`,
    `a\n${secret}`,
    secret.repeat(6).slice(5),
  ];
  const notPaths = [...contents, "", object, [object], Number(secret)];
  const urls = ["", "keys.db", `sqlite:postgres://u:${secret}@db`, `mongodb://u:${secret}@db`, "SQLITE:keys.db"];
  const rows: readonly [SettingName, rule: string, strings: readonly string[], members: readonly unknown[]][] = [
    ["host", host, ["", "[::1]", "a b", "300.1.1.1", "http://a", "a:80"], ["", 1, true, object]],
    ["port", port, ["", "x", "65536", "-1", "1.5", "1e3", " 80", "0x50"], ["80", true, 65_536, -1, 1.5, [80]]],
    ["issuer", notEmpty, [""], [""]],
    ["mountPrefix", notEmpty, [""], [""]],
    ["jwksPath", notEmpty, [""], [""]],
    ["rotateEveryDays", seconds, ["", "90d", "-1", "1.5"], ["90", -1, 1.5, 1_000_000_001]],
    ["announceForSeconds", seconds, ["1h"], [true]],
    ["maxTokenLifetimeSeconds", seconds, ["1h"], [true]],
    ["clockSkewSeconds", seconds, ["1h"], [true]],
    ["cacheSlackSeconds", seconds, ["1h"], [true]],
    ["maxStaleSeconds", seconds, ["1h"], [true]],
    ["data", notEmpty, [""], [""]],
    ["signers", path, [...contents, ""], notPaths],
    ["keys", path, [...contents, ""], notPaths],
    ["encryptionKeys", path, [...contents, ""], notPaths],
    ["wrappingKeyFile", path, [...contents, ""], notPaths],
    ["store", store, [...urls, `etcd://u:${secret}@a:1,b:x`], ["", "/keys.db", object]],
    ["rotationMode", trueOrFalse, ["", "yes", "TRUE", "constructor"], ["true", 1]],
    ["reusePort", trueOrFalse, ["2"], [1]],
    ["noCors", trueOrFalse, ["no"], ["no"]],
    ["admin", address, ["127.0.0.1", "9901", ":9901", "127.0.0.1:65536", "127.0.0.1:x", "on"], ["OFF"]],
    ["logLevel", level, ["", "trace", "INFO"], ["fatal", 30]],
    ["jsonLogs", trueOrFalse, ["json"], [0]],
  ];
  for (const [name, rule, strings, members] of rows) {
    test(`${name} ${rule}`, async (t) => {
      const configFile = join(await temporaryFolder(t), "jwksd.json");
      for (const text of strings) {
        await assertRefused({ flags: { [name]: text }, environment: {} }, flagName(name), rule);
        const environment = { [variableName(name)]: text };
        await assertRefused({ flags: {}, environment }, variableName(name), rule);
      }
      for (const member of members) {
        await writeFile(configFile, JSON.stringify({ [name]: member }));
        const source = `"${name}" in the configuration file`;
        await assertRefused({ flags: {}, environment: {}, configFile }, source, rule);
      }
    });
  }
});

test("conflicting settings are rejected: those for key files with those for managed keys, or more than one source for a wrapping key", async () => {
  const rows: readonly (readonly [one: "keys" | "wrappingKeyFile", other: string, value: string])[] = [
    ["keys", "store", "sqlite:keys.db"],
    ["keys", "signerType", "pkcs11"],
    ["keys", "signers", "signers.json"],
    ["keys", "destroyExternal", "true"],
    ["keys", "rotateEveryDays", "30"],
    ["keys", "wrappingKeys", "x"],
    ["wrappingKeyFile", "wrappingKeys", "x"],
  ];
  for (const [one, other, value] of rows) {
    const environment = { [variableName(other)]: value };
    const otherName = other === "wrappingKeys" ? "JWKSD_WRAPPING_KEYS" : flagName(other);
    await assert.rejects(resolveSettings({ flags: { [one]: "a" }, environment }), {
      code: "ERR_OPTION_INVALID",
      message: `${flagName(one)} and ${otherName} cannot be combined; use only one of them`,
    });
  }
});

describe(
  "after a configuration error, startup fails with code 1 and a one-line message",
  { timeout, concurrency: 4 },
  () => {
    interface Given {
      readonly args?: readonly string[];
      readonly env?: Readonly<Record<string, string>>;
      /** Content of the `--config` file. */
      readonly config?: string;
    }
    const noFile = /no\.json cannot be read \(ENOENT\) \[ERR_CONFIG_FORMAT\]/;
    const nowhere = ["--host", "192.0.2.1", "--issuer", "https://op.example"];
    const rows: readonly [name: string, given: Given, says: RegExp][] = [
      [
        "unknown variable",
        { env: { JWKSD_PROT: "80" } },
        /unknown environment variable JWKSD_PROT \(did you mean JWKSD_PORT\?\) \[ERR_OPTION_UNKNOWN\]/,
      ],
      [
        "unknown member",
        { config: '{"isuer": "https://op.example"}' },
        /unknown member of .*jwksd\.json: isuer \(did you mean issuer\?\) \[ERR_OPTION_UNKNOWN\]/,
      ],
      ["malformed file", { config: '{"port": 80' }, /jwksd\.json is not JSON.* \[ERR_CONFIG_FORMAT\]/],
      ["file that is not an object", { config: "[]" }, /jwksd\.json is not a JSON object \[ERR_CONFIG_FORMAT\]/],
      ["missing file", { args: ["--config", "no.json"] }, noFile],
      ["missing JWKSD_CONFIG file", { env: { JWKSD_CONFIG: "no.json" } }, noFile],
      [
        "wrong variable",
        { env: { JWKSD_REUSE_PORT: "2" } },
        /JWKSD_REUSE_PORT must be true or false \[ERR_OPTION_INVALID\]/,
      ],
      ["missing keys", { args: ["--keys", "no"] }, /cannot read no \(ENOENT\) \[ERR_FILE_UNREADABLE\]/],
      ["data folder that is a file", { args: ["--data", "/dev/null"] }, /\/dev\/null \(.*\).*\[ERR_FILE_UNWRITABLE\]/],
      [
        "invalid wrapping key",
        { env: { JWKSD_WRAPPING_KEYS: `${Buffer.alloc(32).toString("base64url")} short` } },
        /JWKSD_WRAPPING_KEYS, word 2, has 5 characters, not 43; a wrapping key is 32 random bytes in base64url.* \[ERR_WRAPPING_KEY_INVALID\]/,
      ],
      [
        "missing wrapping key file",
        { args: ["--wrapping-key-file", "no.key"] },
        /cannot read the file set by --wrapping-key-file or JWKSD_WRAPPING_KEY_FILE \(ENOENT\): \/\S+\/no\.key; check its path.* \[ERR_FILE_UNREADABLE\]/,
      ],
      [
        "unavailable host",
        { args: nowhere },
        /cannot listen on 192\.0\.2\.1:0: .*\(EADDRNOTAVAIL\); choose another address \[ERR_LISTEN\]/,
      ],
      [
        "unavailable host and port",
        { args: [...nowhere, "--port", "8099"] },
        /cannot listen on 192\.0\.2\.1:8099: .*; choose another address with --host \[ERR_LISTEN\]/,
      ],
    ];
    for (const [name, { args = [], env = {}, config }, says] of rows) {
      test(name, async (t) => {
        const folder = await temporaryFolder(t);
        const configFile = join(folder, "jwksd.json");
        if (config !== undefined) await writeFile(configFile, config);
        const configArgs = config === undefined ? [] : ["--config", configFile];
        const variables = { JWKSD_DATA: join(folder, "data"), JWKSD_ADMIN: "off", JWKSD_LOG_LEVEL: "silent", ...env };
        const portArgs = args.includes("--port") ? [] : ["--port", "0"];
        const stderr = await cliRefused(t, ["serve", ...portArgs, ...configArgs, ...args], variables);
        assert.match(stderr, /^jwksd: [^\n]+\n$/);
        assert.match(stderr, says);
      });
    }
  },
);

// Other loopback addresses and a shared port require Linux.
test("flags reach the service", { timeout, skip: process.platform !== "linux" }, async (t) => {
  const folder = await temporaryFolder(t);
  const [keys, encryptionKeys] = [join(folder, "keys.json"), join(folder, "encryption.json")];
  await writeFile(keys, keySetText("active", "retiring"));
  await writeFile(encryptionKeys, JSON.stringify({ keys: [named("encryption", ecKey("e", "P-384"))] }));
  const [host, adminHost] = ["127.0.0.2", "127.0.0.3"];
  const [port, adminPort] = await Promise.all([freePort(host), freePort(adminHost)]);
  const issuer = "https://login.example.com/tenant";
  const where = ["--host", host, "--port", String(port), "--admin", `${adminHost}:${adminPort}`, "--reuse-port"];
  const what = ["--issuer", issuer, "--mount-prefix", "/oidc", "--jwks-path", "/certs", "--rotation-mode", "--no-cors"];
  const service = await startService(t, [...where, ...what, "--keys", keys, "--encryption-keys", encryptionKeys]);

  assert.equal(service.jwksUri, "https://login.example.com/tenant/oidc/certs");
  const client = await Client.open(port, { host });
  const reply = await client.request(`GET /tenant/oidc/certs HTTP/1.1\r\nHost: login.example.com\r\n\r\n`);
  assert.deepEqual(kidsIn(reply), ["active", "retiring", "encryption"]);
  assert.equal(reply.headers["cache-control"], "public, max-age=300, must-revalidate");
  assert.equal(reply.headers["access-control-allow-origin"], undefined);
  const discovery = await client.request(
    "GET /tenant/.well-known/openid-configuration HTTP/1.1\r\nHost: login.example.com\r\n\r\n",
  );
  const served = JSON.parse(discovery.body) as Record<string, unknown>;
  assert.deepEqual([served["issuer"], served["jwks_uri"]], [issuer, service.jwksUri]);
  assert.equal((await fetch(`http://${adminHost}:${adminPort}/readyz`)).status, 200);
});

test("reads the file that --config or JWKSD_CONFIG names", async (t) => {
  const file = join(await temporaryFolder(t), "jwksd.json");
  await writeFile(file, JSON.stringify({ port: 1 }));
  const silent = { write: () => assert.fail("unexpected output") };
  const io = { stdin: Readable.from([]), stdout: silent, stderr: silent, exitCode: 0 };
  for (const [args, environment] of [
    [["--config", file], {}],
    [[], { JWKSD_CONFIG: file }],
  ] as const) {
    const flags = addSettings(new Command("serve"))
      .parse([...args], { from: "user" })
      .opts();
    assert.equal((await settingsFrom({ ...io, environment }, flags)).port, 1);
  }
});

test("variables that Kubernetes sets for a service named jwksd are not settings", async () => {
  const environment = {
    JWKSD_SERVICE_HOST: "10.0.0.1",
    JWKSD_SERVICE_PORT: "9900",
    JWKSD_SERVICE_PORT_HTTP: "9900",
    JWKSD_PORT: "tcp://10.0.0.1:9900",
    JWKSD_PORT_9900_TCP: "tcp://10.0.0.1:9900",
    JWKSD_PORT_9900_TCP_PROTO: "tcp",
    JWKSD_PORT_9900_TCP_PORT: "9900",
    JWKSD_PORT_9900_TCP_ADDR: "10.0.0.1",
    JWKSD_ADMIN_SERVICE_HOST: "10.0.0.2",
    JWKSD_ADMIN_PORT: "tcp://10.0.0.2:9901",
  };
  const { port } = await resolveSettings({ flags: {}, environment });
  assert.equal(port, settingDefinitions.port.fallback);
});

test("does not echo a wrapping key passed instead of its path", async (t) => {
  const bytes = randomBytes(32);
  const data = await temporaryFolder(t);
  for (const key of [bytes.toString("base64"), bytes.toString("hex"), `/${bytes.toString("hex")}`]) {
    const stderr = await cliRefused(t, ["serve", "--port", "0", "--admin", "off", "--data", data], {
      JWKSD_WRAPPING_KEY_FILE: key,
    });
    assert.match(stderr, /the file set by --wrapping-key-file or JWKSD_WRAPPING_KEY_FILE .*\[ERR_FILE_UNREADABLE\]/);
    assert.ok(!stderr.includes(key), stderr);
  }
});

test("rejects a configuration file's content passed instead of its path, without echoing it", async () => {
  const code = "ERR_CONFIG_FORMAT";
  const message = "the configuration file must be a path, not the contents of a file";
  for (const configFile of [`{"keys":"a-secret"}`, "91827364".repeat(6).slice(5)]) {
    await assert.rejects(resolveSettings({ flags: {}, environment: {}, configFile }), { code, message });
    await assert.rejects(resolveSettings({ flags: {}, environment: { JWKSD_CONFIG: configFile } }), { code, message });
  }
});

async function assertRefused(
  sources: Parameters<typeof resolveSettings>[0],
  source: string,
  rule: string,
): Promise<void> {
  await assert.rejects(resolveSettings(sources), (error) => {
    assert.ok(error instanceof ConfigError && error.code === "ERR_OPTION_INVALID", String(error));
    assert.equal(error.message, `${source} ${rule}`);
    return true;
  });
}

// Commands without the service's settings use the policy in the store.

async function dataOf(t: TestContext): Promise<string> {
  return join(await temporaryFolder(t), "data");
}

/** Returns the number of days until the next key is announced. */
async function announcedInDays(
  t: TestContext,
  args: readonly string[],
  environment: Readonly<Record<string, string>> = {},
): Promise<[days: number, stderr: string]> {
  const { stdout, stderr } = await cliDone(t, ["plan", "--json", ...args], environment);
  const { now, steps } = JSON.parse(stdout) as { now: string; steps: { action: string; at: string }[] };
  const { at = "" } = steps.find(({ action }) => action === "announced") ?? {};
  return [Math.round((Date.parse(at) - Date.parse(now)) / 86_400_000), stderr];
}

test("the store's policy is used by the plan command and --dry-run, and jwksd serve warns about a flag that differs from it", async (t) => {
  const data = await dataOf(t);
  const policy = ["--rotate-every-days", "30", "--max-token-lifetime-seconds", "7200"];
  const first = await startService(t, ["--data", data, ...policy]);
  for (const environment of [{}, { JWKSD_ROTATE_EVERY_DAYS: "60" }]) {
    assert.deepEqual(await announcedInDays(t, ["--data", data], environment), [29, ""]);
  }
  const dry = await runCli(t, ["rotate", "--dry-run", "--json", "--data", data]);
  const { changes } = JSON.parse(dry.stdout) as { changes: { retireForSeconds: number }[] };
  assert.deepEqual(
    changes.map(({ retireForSeconds }) => retireForSeconds),
    [3600 + 7200 + 600],
  );
  await cliDone(t, ["token", "--data", data, "--aud", "api", "--lifetime", "7200"]);

  const second = await startService(t, ["--data", data, "--rotate-every-days", "60"]);
  for (const { log, differs } of [
    { log: first.log, differs: false },
    { log: second.log, differs: true },
  ]) {
    const warned = log.some(({ msg }) => /--rotate-every-days.*jwksd policy/.test(msg));
    assert.equal(warned, differs, JSON.stringify(log));
  }
  await cliDone(t, ["policy", "--rotate-every-days", "60", "--data", data]);
  assert.deepEqual(await announcedInDays(t, ["--data", data]), [59, ""]);
});

test("the rewrap command changes nothing while a running replica lacks the wrapping key, and names the replica and the key", async (t) => {
  const folder = await temporaryFolder(t);
  const data = join(folder, "data");
  const first = await startService(t, ["--data", data, "--replica-name", "one"]);
  const [own, next] = [await wrappingKeyOf(data), newWrappingKey()];
  const file = join(folder, "keys");
  await writeFile(file, `${next}\n${own}\n`, { mode: 0o600 });
  const rewrap = (...more: readonly string[]) =>
    runCli(t, ["keys", "rewrap", "--data", data, "--wrapping-key-file", file, ...more]);
  const id = await calculateJwkThumbprint({ kty: "oct", k: next });
  for (const more of [[], ["--dry-run"]]) {
    const { code, stderr } = await rewrap(...more);
    assert.equal(code, 1);
    assert.match(
      stderr,
      new RegExp(
        `nothing was changed: .* with the wrapping key ${id}, but these replicas do not have that key: "one" \\(last`,
      ),
    );
  }
  // Other changes keep the store under its wrapping key, so the replica can read them.
  for (const args of [["rotate"], ["rotate", "--now", "--yes"]]) {
    await cliDone(t, [...args, "--data", data, "--wrapping-key-file", file]);
  }
  await first.stop();
  await startService(t, ["--data", data, "--wrapping-key-file", file, "--replica-name", "one"]);

  const { code, stderr } = await rewrap();
  assert.equal(code, 0, stderr);
});
