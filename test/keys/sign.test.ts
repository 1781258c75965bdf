import assert from "node:assert/strict";
import { readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test, type TestContext } from "node:test";
import * as jose from "jose";
import { localSigner } from "../../src/keys/signer/local-signer.ts";
import type { ExternalSigner } from "../../src/keys/signer/signer.ts";
import { createKeyring } from "../../src/rotation/manager/key-changes.ts";
import { externalKey } from "../../src/rotation/manager/private-keys.ts";
import { createStoreAccess } from "../../src/rotation/manager/store-access.ts";
import { applyCommand } from "../../src/rotation/rules/commands.ts";
import { rotationPolicy } from "../../src/rotation/rules/policy.ts";
import { memoryStore } from "../../src/rotation/store/memory.ts";
import type { ReadOptions, Register } from "../../src/rotation/store/register.ts";
import { signOnce } from "../../src/service/token/sign-once.ts";
import { ecKey } from "../support/keys.ts";
import { assertWhole, getOnce } from "../support/load.ts";
import { custodyOf, newWrappingKey } from "../support/managed.ts";
import { refusal } from "../support/refusal.ts";
import { type RunningService, keySetText, startService, temporaryFolder } from "../support/service.ts";
import { simulatedClock } from "../support/simulated.ts";

const issuer = "https://op.example";
// Shorter than the maximum time of an HSM call.
const policy = rotationPolicy({ maxStaleSeconds: 30 });
const skewMs = policy.clockSkewSeconds * 1_000;
const isStale = { code: "ERR_SIGNER_STALE" };

/** Creates a store with one key in an HSM, and the duration of each step of signing a token, in milliseconds. */
async function oneKey() {
  const clock = simulatedClock();
  const delays = { read: 0, open: 0 };
  const reads: (ReadOptions | undefined)[] = [];
  /** Offset of the store's clock, in milliseconds. */
  let aheadMs = 0;
  const memory = memoryStore({ clock });
  const store: Register = {
    ...memory,
    async read(known, options) {
      reads.push(options);
      const { now = 0, ...found } = await memory.read(known, options);
      await clock.advance(delays.read);
      return { ...found, now: now + aheadMs };
    },
  };
  const local = await localSigner(ecKey("a"));
  const openSigner = async (uri: string): Promise<ExternalSigner> => {
    await clock.advance(delays.open);
    return {
      publicKey: local.publicKey,
      uri,
      sign: (input) => local.sign(input),
      close: async () => {},
    };
  };
  const custody = await custodyOf(store, [newWrappingKey()], { issuer, isChosen: true });
  const { signal } = new AbortController();
  const access = createStoreAccess(custody, { policy, clock, signal });
  const newKeyring = () => createKeyring({ custody, access, clock, signal, report() {} }, { openSigner });
  const key = await externalKey(await openSigner("hsm:a"), "a");
  await newKeyring().change(({ now }) => applyCommand([], { type: "announce", key }, { policy, now }));
  // This keyring has not opened the key yet.
  const keyring = newKeyring();
  reads.length = 0;
  return {
    clock,
    delays,
    reads,
    setAhead: (ms: number) => (aheadMs = ms),
    sign: async () => jose.decodeJwt(await signOnce({ access, keyring }, () => issuer, { aud: "a" }, {}, clock)),
  };
}

describe("a single token based on one confirmed read of the store", () => {
  test("has times that are measured after the read and a lifetime that follows the store's policy", async () => {
    const { reads, sign, delays, clock } = await oneKey();
    [delays.read, delays.open] = [2_000, 27_000];
    const before = clock.now() / 1_000;
    const { iat, exp } = await sign();
    assert.deepEqual(
      reads.map((options) => options?.confirmed),
      [true],
    );
    assert.deepEqual([iat, exp], [before + 29, before + 29 + policy.maxTokenLifetimeSeconds]);
  });

  test("is not signed if the machine was paused for maxStaleSeconds after the read, whichever clock stopped", async () => {
    for (const stopped of ["none", "monotonic"] as const) {
      const { sign, delays, clock } = await oneKey();
      if (stopped === "monotonic") Object.assign(clock, { monotonic: () => 0 });
      delays.open = 29_800;
      await assert.rejects(sign(), isStale);
    }
  });

  for (const aheadMs of [-skewMs, skewMs]) {
    test(`is signed if the clocks are ${aheadMs} ms apart, but not if they are further apart`, async () => {
      const { sign, setAhead } = await oneKey();
      setAhead(aheadMs);
      assert.equal((await sign())["aud"], "a");
      setAhead(aheadMs + Math.sign(aheadMs));
      await assert.rejects(sign(), isStale);
    });
  }
});

interface Running extends RunningService {
  /** Returns the discovery document's status and JSON. */
  discovery(): Promise<[status: number, document: Record<string, unknown>]>;
}

async function start(t: TestContext, ...args: readonly string[]): Promise<Running> {
  const keys = join(await temporaryFolder(t), "keys.json");
  await writeFile(keys, keySetText("a"), { mode: 0o600 });
  const service = await startService(t, ["--keys", keys, "--issuer", issuer, ...args]);
  return {
    ...service,
    async discovery() {
      const reply = await getOnce(service.port, "/.well-known/openid-configuration");
      return [reply.status, JSON.parse(reply.body) as Record<string, unknown>];
    },
  };
}

async function metadataFile(t: TestContext, text: string): Promise<string> {
  const file = join(await temporaryFolder(t), "metadata.json");
  await writeFile(file, text);
  return file;
}

const own = {
  issuer,
  jwks_uri: "https://op.example/jwks",
  id_token_signing_alg_values_supported: ["ES256"],
};
const whole = {
  authorization_endpoint: "https://op.example/authorize",
  token_endpoint: "https://op.example/token",
  response_types_supported: ["code"],
  subject_types_supported: ["public"],
};
const partial = ({ log }: Running): unknown[] =>
  log.filter(({ msg }) => msg.includes("discovery document lacks members")).map(({ missing }) => missing);

describe("jwksd serve", { timeout: 60_000 }, () => {
  test("publishes its own discovery members automatically and logs which members the discovery document lacks", async (t) => {
    const service = await start(t);
    assert.deepEqual(await service.discovery(), [200, own]);
    assert.deepEqual(partial(service), [Object.keys(whole)]);
    // RFC 8414 section 3
    const reply = await getOnce(service.port, "/.well-known/oauth-authorization-server");
    assert.deepEqual([reply.status, JSON.parse(reply.body)], [200, own]);
  });

  test("--metadata adds the members from a file, and nothing is logged if the document is complete", async (t) => {
    const metadata = await metadataFile(t, JSON.stringify({ ...whole, claims_supported: ["sub"] }));
    const service = await start(t, "--metadata", metadata);
    assert.deepEqual(await service.discovery(), [200, { ...own, ...whole, claims_supported: ["sub"] }]);
    assert.deepEqual(partial(service), []);
  });

  test("with --no-discovery, serves no discovery document and logs nothing about missing members", async (t) => {
    const service = await start(t, "--no-discovery");
    assert.equal((await service.discovery())[0], 404);
    assert.deepEqual(partial(service), []);
    assertWhole(await getOnce(service.port));
  });
});

describe("--metadata: errors in the file are reported before anything is created", { timeout: 60_000 }, () => {
  const rows = [
    {
      text: '{\n"jwks_uri": "https://secret.example"}',
      code: "ERR_OPTION_INVALID",
      message: 'must not set "jwks_uri"',
    },
    { text: '{"issuer": null}', code: "ERR_OPTION_INVALID", message: 'must not set "issuer"' },
    { text: '["secret"]', code: "ERR_CONFIG_FORMAT", message: "is not a JSON object" },
    { text: '{\n"a": secret}', code: "ERR_CONFIG_FORMAT", message: "is not JSON" },
  ] as const;
  for (const { text, code, message: problem } of rows) {
    test(problem, async (t) => {
      const metadata = await metadataFile(t, text);
      const folder = await temporaryFolder(t);
      const data = join(folder, "data");
      const { message } = await refusal(() => startService(t, ["--data", data, "--metadata", metadata]), code);
      assert.ok(message.startsWith(`the metadata file ${metadata} ${problem}`), message);
      assert.ok(!message.includes("secret"), message);
      assert.deepEqual(await readdir(folder), []);
    });
  }

  test("a missing file is rejected", async (t) => {
    const error = await refusal(() => start(t, "--metadata", "no.json"), "ERR_CONFIG_FORMAT");
    assert.equal(error.message, "the metadata file no.json cannot be read (ENOENT)");
  });

  test("--metadata cannot be combined with --no-discovery", async (t) => {
    const error = await refusal(() => start(t, "--metadata", "a.json", "--no-discovery"), "ERR_OPTION_INVALID");
    assert.match(error.message, /^--metadata and --no-discovery cannot be combined/);
  });
});
