import assert from "node:assert/strict";
import { chmod, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type TestContext, describe, test } from "node:test";
import { createRemoteJWKSet, jwtVerify } from "jose";
import { sqliteStore } from "../../src/rotation/store/sqlite/sqlite.ts";
import {
  type RunningService,
  keySetText,
  runCli,
  startService,
  temporaryFolder,
  cliDone,
  cliRefused,
} from "../support/service.ts";

const timeout = 60_000;

interface Running {
  readonly service: RunningService;
  readonly issuer: string;
  readonly keys: string;
  /** Runs `jwksd token` with the configuration of the service. */
  readonly token: (...args: readonly string[]) => Promise<string>;
}

async function start(t: TestContext): Promise<Running> {
  const keys = join(await temporaryFolder(t), "keys.json");
  await writeFile(keys, keySetText("active", "retiring"), { mode: 0o600 });
  const service = await startService(t, ["--keys", keys]);
  const issuer = `http://127.0.0.1:${service.port}`;
  const token = async (...args: readonly string[]): Promise<string> => {
    const { code, stdout, stderr } = await runCli(t, ["token", "--keys", keys, "--issuer", issuer, ...args]);
    assert.deepEqual({ code, stderr }, { code: 0, stderr: "" });
    return stdout.trim();
  };
  return { service, issuer, keys, token };
}

test(
  "the jwksd token command signs a token with the configuration's active key, and jose verifies it",
  { timeout },
  async (t) => {
    const { service, issuer, token } = await start(t);
    const args = ["--aud", "api", "--aud", "other", "--sub", "alice", "--claim", "n=5", "--claim", "scope=read write"];
    const signed = await token(...args, "--claim", 'o={"a":[1]}', "--lifetime", "60", "--typ", "at+jwt");
    const options = { issuer, audience: "api", typ: "at+jwt" };
    const { payload, protectedHeader } = await jwtVerify(signed, createRemoteJWKSet(new URL(service.jwksUri)), options);
    const { iat = 0, exp, jti = "", ...claims } = payload;
    assert.deepEqual(protectedHeader, { alg: "ES256", kid: "active", typ: "at+jwt" });
    assert.deepEqual(claims, {
      iss: issuer,
      aud: ["api", "other"],
      sub: "alice",
      n: 5,
      scope: "read write",
      o: { a: [1] },
    });
    assert.equal(exp, iat + 60);
    assert.match(jti, /^[\da-f-]{36}$/, "RFC 9068 section 2.2");
  },
);

describe("jwksd token refuses", { timeout, concurrency: 4 }, () => {
  const rows = [
    { args: [], says: ["--aud"] },
    { args: ["--aud", "api", "--claim", "novalue"], says: ["name=value"] },
    { args: ["--aud", "api", "--claim", "exp=5"], says: ['claim "exp"', "[ERR_CLAIMS_INVALID]"] },
    { args: ["--aud", "api", "--claim", "iss=x"], says: ['claim "iss"', "[ERR_CLAIMS_INVALID]"] },
    { args: ["--aud", ""], says: ["--aud", "audience must not be empty"] },
    { args: ["--aud", "api", "--claim", "aud=other"], says: ["Set the audience with --aud"] },
    { args: ["--aud", "api", "--claim", "sub=x", "--sub", "y"], says: ["given twice", "--sub"] },
    { args: ["--aud", "api", "--claim", "n=1", "--claim", "n=2"], says: ["claim n is given more than once"] },
    {
      args: ["--aud", "api", "--claim", "id=12345678901234567890"],
      says: ["12345678901234567890 is beyond 2^53 - 1.", `'"12345678901234567890"'`],
    },
    { args: ["--aud", "api", "--lifetime", "1h"], says: ["whole number of seconds"] },
    { args: ["--aud", "api", "--lifetime", "0"], says: ["lifetimeSeconds", "[ERR_CLAIMS_INVALID]"] },
    {
      args: ["--aud", "api", "--data", "no/such/folder"],
      says: ["/no/such/folder/keys.db", "[ERR_STORE_UNAVAILABLE]"],
    },
  ];
  for (const { args, says } of rows) {
    test(args.join(" ") || "nothing", async (t) => {
      const stderr = await cliRefused(t, ["token", ...args, ...(args.includes("--data") ? [] : await someKeys(t))]);
      assert.deepEqual(
        says.filter((part) => !stderr.includes(part)),
        [],
      );
    });
  }
});

/** Seconds of a retirement period in addition to the longest token lifetime: the maximum staleness and twice the clock skew. */
const others = 3600 + 2 * 300;

describe("jwksd token with a service's managed keys", { timeout, concurrency: 4 }, () => {
  test("signs with the active key and rejects a lifetime longer than the policy allows", async (t) => {
    const data = await temporaryFolder(t);
    const service = await startService(t, ["--data", data]);
    const issuer = `http://127.0.0.1:${service.port}`;
    const args = ["token", "--data", data, "--aud", "api"];
    const { code, stdout, stderr } = await runCli(t, args);
    assert.deepEqual({ code, stderr }, { code: 0, stderr: "" });
    const set = createRemoteJWKSet(new URL(service.jwksUri));
    const { protectedHeader } = await jwtVerify(stdout.trim(), set, { issuer, audience: "api" });
    assert.deepEqual([protectedHeader.kid], service.log.find(({ msg }) => msg === "started")?.["kids"]);
    const tooLong = await runCli(t, [...args, "--lifetime", "3601"]);
    assert.deepEqual({ code: tooLong.code, stdout: tooLong.stdout }, { code: 1, stdout: "" });
    assert.match(
      tooLong.stderr,
      /3601, but must be at most 3600, .*raise --max-token-lifetime-seconds \(for managed keys, with jwksd policy\) \[ERR_CLAIMS_INVALID\]\n$/,
    );
    await cliDone(t, ["policy", "--data", data, "--max-token-lifetime-seconds", "7200"]);
    await cliDone(t, [...args, "--lifetime", "3601"]);
    assert.deepEqual(await storedRetirements(t, data), [7200 + others], "or serve would remove the key too early");
    await service.stop();
    assert.equal((await runCli(t, args)).code, 0, "no service has to run");
  });

  test("prints only results on standard output, even when there are warnings", async (t) => {
    const folder = await temporaryFolder(t);
    const [file, data] = [join(folder, "keys.json"), join(folder, "data")];
    await writeFile(file, keySetText("active"));
    assert.equal((await runCli(t, ["keys", "import", file, "--data", data])).code, 0);
    await chmod(join(data, "wrapping.key"), 0o644);
    const warning = /users other than the owner can read .*wrapping\.key/;
    for (const jsonLogs of ["0", "1"]) {
      const args = ["token", "--data", data, "--aud", "api"];
      const { stdout, stderr } = await cliDone(t, args, { JWKSD_JSON_LOGS: jsonLogs });
      assert.match(stdout, /^[\w-]+\.[\w-]+\.[\w-]+\n$/);
      const said = jsonLogs === "1" ? (JSON.parse(stderr) as { msg: string }).msg : stderr;
      assert.match(said, warning);
    }
    const announcing = await cliDone(t, ["rotate", "--json", "--data", data], { JWKSD_JSON_LOGS: "1" });
    assert.doesNotThrow(() => JSON.parse(announcing.stdout));
    assert.match(announcing.stderr, warning);
  });

  test("does not generate a wrapping key for a store without keys", async (t) => {
    const folder = await temporaryFolder(t);
    await sqliteStore(join(folder, "keys.db")).close?.();
    const { code, stdout, stderr } = await runCli(t, ["token", "--data", folder, "--aud", "api"]);
    assert.deepEqual({ code, stdout, files: await readdir(folder) }, { code: 1, stdout: "", files: ["keys.db"] });
    assert.equal(
      stderr,
      'jwksd: the store has no keys; if it had keys before, see "A lost store" in docs/emergencies.md; if it is new, start jwksd serve, which generates the first key [ERR_TRANSITION]\n',
    );
  });
});

async function someKeys(t: TestContext): Promise<string[]> {
  const keys = join(await temporaryFolder(t), "keys.json");
  await writeFile(keys, keySetText("active"), { mode: 0o600 });
  return ["--keys", keys];
}

/** Returns the keys' retirement periods, in the order in which the keys were added. */
async function storedRetirements(t: TestContext, data: string): Promise<unknown[]> {
  const { stdout } = await runCli(t, ["keys", "list", "--json", "--data", data]);
  const { keys } = JSON.parse(stdout) as { keys: { retireForSeconds?: number }[] };
  return keys.map(({ retireForSeconds }) => retireForSeconds);
}
