import assert from "node:assert/strict";
import { access, cp, mkdir, readFile, readdir, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type TestContext, describe, test } from "node:test";
import type * as jose from "jose";
import type { StoreDocument } from "../../src/rotation/custody/document.ts";
import { presenceText } from "../../src/rotation/custody/presence-records.ts";
import { jweOf, liveRecords } from "../../src/rotation/rules/key-records.ts";
import { sqliteStore } from "../../src/rotation/store/sqlite/sqlite.ts";
import { type NamedKey, named, privateMembers, rsaKey } from "../support/keys.ts";
import { readStore } from "../support/managed.ts";
import { type Finished, keySetText, runCli, temporaryFolder, cliDone, cliRefused } from "../support/service.ts";
import { presenceRecord } from "../support/store-view.ts";

const timeout = 180_000;

/** Prepares a store with one active key, `first`, and functions that run commands on it and record all output. */
async function setUp(t: TestContext, keys: readonly NamedKey[] = [named("first")]) {
  const folder = await temporaryFolder(t);
  const data = join(folder, "data");
  const outputs: string[] = [];
  const secrets = keys.flatMap(secretsOf);

  async function run(...args: string[]): Promise<Finished> {
    const finished = await runCli(t, withFlags(args, "--data", data));
    outputs.push(finished.stdout, finished.stderr);
    return finished;
  }
  async function ok(...args: string[]): Promise<string> {
    const { code, stdout, stderr } = await run(...args);
    assert.equal(code, 0, stderr);
    return stdout;
  }
  async function refused(code: string, ...args: string[]): Promise<string> {
    const before = await stored();
    const finished = await run(...args);
    assert.deepEqual([finished.code, finished.stdout], [1, ""]);
    assert.match(finished.stderr, new RegExp(`\\[${code}\\]\\n$`));
    assert.deepEqual(await stored(), before, "a refusal changes nothing");
    return finished.stderr;
  }
  async function stored(): Promise<Pick<StoreDocument, "records" | "policy"> | undefined> {
    // Opening a store creates it.
    return (await readdir(folder)).includes("data") ? readStore(join(data, "keys.db")) : undefined;
  }
  async function states(): Promise<string[]> {
    return ((await stored())?.records ?? []).map(({ kid, use, state }) => `${kid} ${use} ${state}`);
  }
  /** Runs a change as a dry run, which must change nothing and print the same, and then for real. */
  async function change(...args: string[]): Promise<ChangeOutput> {
    const before = await stored();
    const dry = JSON.parse(await ok(...withFlags(args, "--dry-run", "--json"))) as ChangeOutput;
    assert.deepEqual(await stored(), before, "a dry run changes nothing");
    const real = JSON.parse(await ok(...withFlags(args, "--json"))) as ChangeOutput;
    assert.deepEqual([dry.dryRun, real.dryRun], [true, false]);
    assert.deepEqual(shapeOf(dry), shapeOf(real));
    return real;
  }
  /** Checks that no output contains private members or wrapped private keys. */
  async function assertSilent(): Promise<void> {
    const wrapped = liveRecords((await stored())?.records ?? []).flatMap((record) => jweOf(record) ?? []);
    const wrappingKey = (await readFile(join(data, "wrapping.key"), "utf8")).trim();
    const all = outputs.join("\n");
    for (const secret of [...secrets, ...wrapped, wrappingKey]) assert.ok(!all.includes(secret));
    assert.doesNotMatch(all, /"(d|p|q|dp|dq|qi|jwe|privateHalf)":|PRIVATE KEY/);
  }

  await mkdir(folder, { recursive: true });
  const file = join(folder, "keys.json");
  await writeFile(file, JSON.stringify({ keys }));
  return { folder, data, file, run, ok, refused, stored, states, change, assertSilent };
}

/** Inserts flags before "--", because the kids after it may begin with a dash. */
function withFlags(args: readonly string[], ...flags: readonly string[]): string[] {
  const end = args.includes("--") ? args.indexOf("--") : args.length;
  return [...args.slice(0, end), ...flags, ...args.slice(end)];
}

function secretsOf(key: NamedKey): string[] {
  return privateMembers.flatMap((member) => key[member] ?? []);
}

interface ChangeOutput {
  readonly dryRun: boolean;
  readonly changes: readonly { readonly kid: string; readonly state: string; readonly stateBefore: string | null }[];
  readonly events: readonly { readonly type: string; readonly kid: string }[];
  readonly effects: readonly string[];
  readonly next: readonly { readonly action: string }[];
}

/** Returns the parts that a dry run and the real run have in common: everything except times and the kids of generated keys. */
function shapeOf({ changes, events, effects, next }: ChangeOutput) {
  return [
    changes.map(({ state, stateBefore }) => `${stateBefore} ${state}`),
    events.map(({ type }) => type),
    effects.map((line) => line.slice(0, 10)),
    next.map(({ action }) => action),
  ];
}

describe("managed keys on the command line", { timeout, concurrency: 3 }, () => {
  test("can be rotated as planned", async (t) => {
    const { file, ok, refused, change, states, assertSilent } = await setUp(t);
    await ok("keys", "import", file);
    assert.deepEqual(await states(), ["first sig active"]);

    const told = await change("rotate");
    const kid = told.changes[0]?.kid ?? "";
    assert.deepEqual(await states(), ["first sig active", `${kid} sig announced`]);
    assert.match(told.effects.join("\n"), /is published now and starts signing at .*nothing breaks/);
    assert.deepEqual(
      told.next.map(({ action }) => action),
      ["retired", "activated", "removed"],
    );

    assert.match(await refused("ERR_TRANSITION", "rotate"), /is already announced/);
    assert.match(await refused("ERR_TOO_EARLY", "keys", "activate", "--", kid), /allowed at \d{4}-/);
    assert.match(await refused("ERR_TOO_EARLY", "keys", "retire", "first"), /allowed at \d{4}-/);
    const asked = await refused("ERR_CONFIRMATION", "keys", "activate", "--force", "--", kid);
    assert.match(
      asked,
      /nothing was changed.*to make the change anyway, add --yes\. Effects:\n- .*\n- .*Until .* the key's tokens are rejected/s,
    );

    const { effects } = await change("keys", "activate", "--force", "--yes", "--", kid);
    assert.match(
      effects.join("\n"),
      /Until .* the key's tokens are rejected .*caches may keep it for 7200 s more.*verifiers reject its tokens: .*jose/,
    );
    assert.deepEqual(await states(), ["first sig retiring", `${kid} sig active`]);

    assert.match(await refused("ERR_TOO_EARLY", "keys", "remove", "first"), /allowed at/);
    await refused("ERR_CONFIRMATION", "keys", "remove", "first", "--force");
    assert.match((await change("keys", "remove", "first", "--force", "--yes")).effects.join("\n"), /removed too early/);
    assert.deepEqual(await states(), ["first sig removed", `${kid} sig active`]);
    await refused("ERR_KID_USED", "keys", "import", file, "--kid", "first");
    await assertSilent();
  });

  test("can be replaced in an emergency: the next key is used for signing immediately, and then the old key is revoked", async (t) => {
    const { file, ok, refused, change, states, assertSilent } = await setUp(t);
    await ok("keys", "import", file);
    assert.match(await refused("ERR_CONFIRMATION", "rotate", "--now"), /Until .* the key's tokens are rejected/);
    const told = await change("rotate", "--now", "--yes");
    const kid = told.changes.find(({ state }) => state === "active")?.kid;
    assert.deepEqual(await states(), ["first sig retiring", `${kid} sig active`]);
    assert.match(
      await refused("ERR_CONFIRMATION", "keys", "revoke", "first"),
      /Verifiers may trust it until .*A process that has not read this change may still use the key until/s,
    );
    const { effects } = await change("keys", "revoke", "first", "--yes");
    assert.match(
      effects.join("\n"),
      /Verifiers may trust it until .* at most 3600 s \(maxStaleSeconds\), and caches keep that set for another 7200 s/,
    );
    assert.match(await ok("keys"), /is revoked\. Verifiers may trust it until/);
    await refused("ERR_TRANSITION", "keys", "revoke", "first", "--yes");
    await assertSilent();
  });

  test("can be rolled back: the earlier key is used for signing again, and that key's rotation period determines when the next key is announced", async (t) => {
    const { file, ok, refused, change, states, assertSilent } = await setUp(t);
    await ok("keys", "import", file);
    assert.match(await refused("ERR_TRANSITION", "rotate", "--back"), /no earlier key to roll back to/);
    const kid = (await change("rotate", "--now", "--yes")).changes.at(-1)?.kid ?? "";
    const { effects, next } = await change("rotate", "--back");
    assert.deepEqual(await states(), ["first sig active", `${kid} sig retiring`]);
    assert.match(
      effects.join("\n"),
      /^Signing key "first" signs again from now on\. .* every cache has it and nothing/,
    );
    assert.deepEqual(
      next.map(({ action }) => action),
      ["removed"],
    );
    // The other key was never announced, so this is like rotate --now.
    assert.match(await refused("ERR_TOO_EARLY", "rotate", `--back=${kid.slice(0, 8)}`), /--now --yes/);
    assert.match(
      await refused("ERR_CONFIRMATION", "rotate", "--back", "--now"),
      /Until .* the key's tokens are rejected/,
    );
    await ok("rotate");
    assert.match(await refused("ERR_TRANSITION", "rotate", "--back", "--now", "--yes"), /--withdraw/);
    await change("rotate", "--back", "--withdraw", "--now", "--yes");
    assert.deepEqual((await states()).slice(0, 2), ["first sig retiring", `${kid} sig active`]);
    for (const args of [["--withdraw"], ["--back", "--use", "enc"], ["--back", "--alg", "ES256"]])
      await refused("ERR_OPTION_INVALID", "rotate", ...args);
    await assertSilent();
  });

  test("an issuer can be decommissioned gracefully, then immediately, and again after a backup is restored", async (t) => {
    const { data, file, run, ok, refused, change, states, stored, assertSilent } = await setUp(t);
    const folder = join(data, "..");
    await ok("keys", "import", file, "--issuer", "https://op.example");
    await ok("rotate");
    await cp(data, join(folder, "backup"), { recursive: true });
    assert.match(
      await refused("ERR_CONFIRMATION", "decommission"),
      /the issuer's keys would never sign again; to make the change anyway, add --yes\. Effects:\n- /,
    );
    const { effects, next } = await change("decommission", "--yes");
    assert.match(
      effects.join("\n"),
      /until .*, when its last token will have expired.*ERR_SIGNER_DECOMMISSIONED.*cannot read format 2 rejects the store .*ERR_STORE_FORMAT.*publishing the keys that it has and stops signing by \d.*Update these processes first.*jwksd replicas\..*one key/s,
    );
    assert.deepEqual(
      next.map(({ action }) => action),
      ["removed"],
    );
    assert.match((await states()).join(), /^first sig retiring,\S+ sig removed$/);
    assert.match(
      await refused("ERR_SIGNER_DECOMMISSIONED", "token", "--aud", "x"),
      /the issuer has been decommissioned/,
    );
    for (const args of [
      ["rotate"],
      ["rotate", "--back"],
      ["keys", "announce"],
      ["keys", "import", file, "--kid", "first"],
    ])
      await refused("ERR_ISSUER_DECOMMISSIONED", ...args);
    assert.match(
      await ok("keys"),
      /\nThe issuer has been decommissioned: its keys no longer sign, and no new keys are\ngenerated\./,
    );
    assert.match(
      await ok("decommission", "--yes"),
      /^There is nothing to change\. The issuer has already been decommissioned\.\n/,
    );
    const lines = (await ok("decommission", "--now", "--yes")).trimEnd().split("\n");
    assert.match(
      lines.join("\n"),
      /^revoked sig first: .*\nEffects:\n.* may trust it until .*\n {2}- From now on, \/jwks contains one key/s,
    );
    const kept = lines.at(-1) ?? "";
    assert.match(kept, /^\{"issuer":"\S+","now":true,"at":"\S+"\}$/);

    await rm(data, { recursive: true });
    await cp(join(folder, "backup"), data, { recursive: true });
    const list = join(folder, "decommissioned.txt");
    await writeFile(
      list,
      `${lines.join("\n")}\n${kept.replace("true", "false")}\n${kept.replace("https://", "https://other.")}\n`,
    );
    const { code, stderr, stdout } = await run("decommission", "--from", list, "--yes");
    assert.deepEqual([code, stdout.match(/^revoked sig/gm)?.length], [1, 2], stderr);
    assert.match(stderr, /^jwksd: https:\/\/other\..*\[ERR_STORE_ISSUER\]\n$/m);
    assert.match((await states()).join(), /^first sig revoked,\S+ sig revoked$/);
    const before = await stored();
    assert.equal((await run("decommission", "--from", list, "--yes")).code, 1);
    assert.deepEqual(await stored(), before, "it can be repeated");
    const restore = async (): Promise<void> => {
      await rm(data, { recursive: true });
      await cp(join(folder, "backup"), data, { recursive: true });
    };
    await restore();
    await writeFile(list, kept.replace(/"at":"\d+/, '"at":"2020'));
    const again = await run("decommission", "--from", list, "--yes");
    assert.deepEqual([again.code, again.stdout.includes("revoked")], [1, false]);
    assert.match(again.stderr, /reused.*\[ERR_TRANSITION\]/);
    await writeFile(list, await ok("decommission", "--now", "--yes", "--json"));
    await restore();
    await ok("decommission", "--from", list, "--yes");
    assert.match((await states()).join(), /^first sig revoked,\S+ sig revoked$/, "from JSON output");
    await writeFile(list, '{"issuer":"https://op');
    await refused("ERR_OPTION_INVALID", "decommission", "--from", list, "--yes");
    await assertSilent();
  });

  test("include encryption keys, which are announced and rotated like signing keys", async (t) => {
    const { file, ok, refused, change, stored, assertSilent } = await setUp(t);
    await ok("keys", "import", file);
    await ok("keys", "announce", "--use", "enc");
    await change("rotate", "--use", "enc", "--alg", "ECDH-ES");
    await refused("ERR_OPTION_INVALID", "rotate", "--use", "enc", "--alg", "ES256");
    await refused("ERR_OPTION_INVALID", "rotate", "--alg", "ECDH-ES");
    const { records = [] } = (await stored()) ?? {};
    assert.deepEqual(
      liveRecords(records).map(({ use, alg, state }) => `${use} ${alg} ${state}`),
      ["sig ES256 active", "enc RSA-OAEP-256 active", "enc ECDH-ES announced"],
    );
    await assertSilent();
  });

  test("importing a set activates the first key for each use and retires the others, and every key can be exported again", async (t) => {
    const keys = [named("enc-1", { ...rsaKey(), use: "enc" }), named("now"), named("before")];
    const { folder, file, ok, refused, states, run, assertSilent } = await setUp(t, keys);
    await refused("ERR_OPTION_INVALID", "keys", "import", file, "--state", "active");
    const dry = await ok("keys", "import", file, "--dry-run");
    assert.match(dry, /^Dry run: nothing was changed\.\n/);
    await ok("keys", "import", file);
    assert.deepEqual(await states(), ["now sig active", "before sig retiring", "enc-1 enc active"]);
    await refused("ERR_TRANSITION", "keys", "import", file);

    const set = JSON.parse(await ok("keys", "export")) as jose.JSONWebKeySet;
    assert.deepEqual(
      set.keys.map(({ kid, use, alg }) => `${kid} ${use} ${alg}`),
      ["now sig ES256", "before sig ES256", "enc-1 enc RSA-OAEP-256"],
    );
    assert.deepEqual(JSON.parse(await ok("keys", "export", "before")), set.keys[1]);

    const out = join(folder, "out.jwk");
    await refused("ERR_OPTION_INVALID", "keys", "export", "enc-1", "--private", "--yes");
    await refused("ERR_CONFIRMATION", "keys", "export", "enc-1", "--private", "--out", out);
    await ok("keys", "export", "enc-1", "--private", "--out", out, "--yes");
    assert.equal((await stat(out)).mode & 0o777, 0o600);
    assert.deepEqual(JSON.parse(await readFile(out, "utf8")), { ...keys[0], alg: "RSA-OAEP-256" });
    const again = await run("keys", "export", "now", "--private", "--out", out, "--yes");
    assert.match(again.stderr, /\[ERR_FILE_EXISTS\]/);
    await assertSilent();
  });

  test("an import reports the maximum token lifetime it assumes and the key that stays active, and cannot be repeated with a different kid", async (t) => {
    const { folder, file, ok, refused, change } = await setUp(t);
    const own = join(folder, "own.json");
    await writeFile(own, JSON.stringify(named("second")));
    const stays = 'Signing key "first" stays active and signs until the imported key becomes active.';
    const first = await ok("keys", "import", file, "--max-token-lifetime-seconds", "28800");
    assert.match(
      first.replaceAll(/\s+/g, " "),
      /has a lifetime of more than 28800 s. If that is wrong, raise the maximum with --max-token-lifetime-seconds/,
    );
    assert.ok(!first.includes("stays active"));
    const asRetiring = await ok("keys", "import", own, "--state", "retiring", "--dry-run");
    assert.match(
      asRetiring.replaceAll(/\s+/g, " "),
      /no token signed with an imported key has a lifetime of more than 28800 s/,
    );
    assert.ok(!asRetiring.includes("stays active"));
    const { effects } = await change("keys", "import", own);
    assert.match(
      effects.join("\n"),
      /no token signed with an imported key has a lifetime of more than 28800 s. If that is wrong, raise the maximum with jwksd policy/,
    );
    assert.ok(effects.some((effect) => effect.startsWith(stays)));
    // Under another kid, as if its first import had forgotten --kid.
    await writeFile(own, JSON.stringify({ ...named("second"), kid: "other" }));
    assert.match(
      await refused("ERR_TRANSITION", "keys", "import", own),
      /to give this key a different kid, import it into a store/,
    );
  });

  test("the rewrap command encrypts all private keys with a new wrapping key", async (t) => {
    const { folder, data, file, ok, stored, assertSilent } = await setUp(t);
    await ok("keys", "import", file);
    const wrappingKeys = join(folder, "wrapping.keys");
    const fresh = Buffer.alloc(32, 7).toString("base64url");
    await writeFile(wrappingKeys, `${fresh}\n${await readFile(join(data, "wrapping.key"), "utf8")}`, { mode: 0o600 });
    const before = await stored();
    await ok("keys", "rewrap", "--wrapping-key-file", wrappingKeys, "--dry-run");
    assert.deepEqual(await stored(), before);
    const text = await ok("keys", "rewrap", "--wrapping-key-file", wrappingKeys);
    assert.match(text, /^rewrapped sig first: /);
    await writeFile(wrappingKeys, `${fresh}\n`);
    const out = join(folder, "out.jwk");
    await ok("keys", "export", "first", "--private", "--out", out, "--yes", "--wrapping-key-file", wrappingKeys);
    assert.equal((JSON.parse(await readFile(out, "utf8")) as jose.JWK).d, named("first").d);
    assert.match(
      await ok("keys", "rewrap", "--wrapping-key-file", wrappingKeys),
      /^There is nothing to change\. All private keys are already encrypted with the wrapping key \S{43}/,
    );
    await assertSilent();
  });

  test("cannot be changed with the wrong wrapping key or issuer, unless the wrapping key is lost", async (t) => {
    const { folder, file, run, ok, refused, states, assertSilent } = await setUp(t);
    await ok("keys", "import", file);
    await ok("rotate");
    await ok("keys", "announce", "--use", "enc", "--alg", "ECDH-ES");
    const own = join(folder, "own.json");
    await writeFile(own, JSON.stringify(named("second")));
    const wrong = ["--wrapping-key-file", join(folder, "wrapping.keys")];
    await writeFile(join(folder, "wrapping.keys"), Buffer.alloc(32, 7).toString("base64url"), { mode: 0o600 });
    const issuer = ["--issuer", "https://login.example.com"];
    const [, announced = "", encryption = ""] = (await states()).map((text) => text.split(" ")[0]);
    for (const args of [
      ["rotate", "--now", "--yes"],
      ["keys", "import", own],
      ["keys", "remove", announced],
      ["keys", "revoke", "first", "--yes", "--lost-wrapping-key"],
    ]) {
      const told = await refused("ERR_STORE_ISSUER", ...args, ...issuer);
      assert.match(
        told,
        /no issuer yet .*127\.0\.0\.1:9900.* this process is configured for issuer "https:\/\/login\.example\.com"; omit --issuer/,
      );
    }
    for (const args of [
      ["rotate", "--dry-run"],
      ["keys", "remove", announced],
      ["keys", "export"],
      ["keys", "rewrap", "--yes"],
    ]) {
      assert.match(await refused("ERR_WRAPPING_KEY_MISSING", ...args, ...wrong), /computed with the wrapping key/);
    }
    assert.match(
      await refused("ERR_WRAPPING_KEY_MISSING", "keys", "revoke", "--yes", ...wrong, "--", announced),
      /nothing was changed.*if that key is lost, see "A lost wrapping key"/,
    );
    // A leaked key must not stay in use because its replacement cannot be used. If its wrapping key is lost, it can be replaced.
    for (const kid of [announced, encryption, "first"]) {
      const { code, stderr } = await run("keys", "revoke", "--yes", "--lost-wrapping-key", ...wrong, "--", kid);
      assert.equal(code, 0, stderr);
      assert.match(stderr, /serve process that does not have this command's wrapping keys/);
      // The first revocation computes the store's MAC again.
      const told = stderr.match(/not verified: .*List its keys with jwksd keys, then revoke every one of them/g) ?? [];
      assert.equal(told.length, kid === announced ? 1 : 0);
    }
    assert.deepEqual(
      (await states()).map((text) => text.split(" ").slice(1).join(" ")),
      ["sig revoked", "sig revoked", "enc revoked", "enc active", "sig active"],
    );
    await ok("rotate", ...wrong);
    await assertSilent();
  });

  test("are shown in a table, with their events and the plan", async (t) => {
    const { folder, data, file, ok, refused, assertSilent } = await setUp(t);
    await ok("keys", "import", file, "--issuer", "https://op.example");
    await ok("rotate");
    const table = await ok("keys");
    assert.match(
      table,
      /^USE {2}STATE +SINCE \(UTC\) +NEXT STEP \(UTC\)\nsig {2}active .* retire \d{4}-.*, in .*\n {5}first\n/,
    );
    const { keys } = JSON.parse(await ok("keys", "list", "--json")) as {
      keys: { kid: string; next: { action: string } }[];
    };
    assert.deepEqual(
      keys.map(({ next }) => next.action),
      ["retired", "activated"],
    );

    const events = JSON.parse(await ok("events", "--json")) as { number: number; type: string; kid: string }[];
    assert.deepEqual(
      events.map(({ number, type }) => `${number} ${type}`),
      ["3 announced", "2 activated", "1 imported"],
    );
    assert.match(await ok("events", "--limit", "1"), /^3 {2}.* announced sig /);

    const svg = join(folder, "plan.svg");
    const picture = await ok("plan", "--svg", svg);
    assert.match(picture, /now.*\nsig first +◀█+│█+▒+\n/);
    // oxlint-disable-next-line no-control-regex
    assert.doesNotMatch(picture, /\u001b/, "colors are for terminals");
    assert.match(picture.replaceAll("\n", " "), /None of the \d+ verifiers .* announced for at least two hours/);
    const drawn = await readFile(svg, "utf8");
    await ok("plan", "--svg", svg);
    // The default file name, because none is set.
    assert.ok((await readFile(svg, "utf8")).includes("Key rotation for https://op.example<"));
    await refused("ERR_FILE_EXISTS", "plan", "--svg", join(data, "keys.db"));
    for (const part of ["Key rotation for https://op.example", "first", keys[1]?.kid ?? "", "(next)"]) {
      assert.ok(drawn.includes(part), part);
    }
    const ahead = JSON.parse(await ok("plan", "--json", "--days", "100")) as {
      steps: object[];
      rotationMode: object[];
    };
    assert.ok(ahead.steps.length >= 6);
    await assertSilent();
  });
});

describe("a store's policy", { timeout }, () => {
  test("is set at the first start and can be changed with a command that reports the effects of the change", async (t) => {
    const { file, ok, refused, change, stored } = await setUp(t);
    await ok("keys", "import", file, "--rotate-every-days", "60");
    await ok("rotate");
    const table =
      /^--rotate-every-days +60\n--announce-for-seconds +86400\n(--\S+ +\d+\n){3}--max-stale-seconds +3600\n/m;
    assert.match(await ok("policy"), table);
    assert.match(await ok("policy", "--dry-run"), table);

    const told = await change("policy", "--announce-for-seconds", "20000", "--rotate-every-days", "30");
    assert.deepEqual(
      told.events.map(({ type }) => type),
      ["policy"],
    );
    assert.match(told.effects.join("\n"), /stays announced for 1 d, because an earlier policy required it/);
    assert.partialDeepStrictEqual((await stored())?.policy, { announceForSeconds: 20_000, rotateEveryDays: 30 });
    assert.match(
      await ok("events", "--limit", "1"),
      /policy\n +rotateEveryDays 60 -> 30, announceForSeconds 86400 -> 20000\n$/,
    );
    const same = await ok("policy", "--rotate-every-days", "30");
    assert.match(same, /^There is nothing to change\. The store already has this policy\./);

    const why = await refused("ERR_POLICY_INVALID", "policy", "--max-stale-seconds", "20000");
    assert.match(why, /--announce-for-seconds is 20000 but must be at least 34700: .*20000 s \(--max-stale-seconds\)/);
    // Checked together with the store's other values, not with the defaults.
    await ok("policy", "--max-stale-seconds", "60", "--cache-slack-seconds", "0");
    await ok("policy", "--announce-for-seconds", "8000");
  });
});

describe("a store", { timeout }, () => {
  test("can be copied unchanged into an empty store, unless a replica is using the source store", async (t) => {
    const { folder, data, file, ok } = await setUp(t);
    await ok("keys", "import", file);
    await ok("rotate");
    const [from, to] = [join(data, "keys.db"), join(folder, "new.db")];
    const migrate = ["store", "migrate", "--store", `sqlite:${from}`, "--to", `sqlite:${to}`];
    const store = sqliteStore(from);
    t.after(async () => store.close?.());
    await store.presence?.put("a", presenceText(presenceRecord("a", { at: Date.now() })));
    assert.match((await runCli(t, migrate)).stderr, /the replica a is using the source store .*\[ERR_TRANSITION\]\n$/);
    await store.presence?.drop(["a"]);
    assert.match((await runCli(t, migrate)).stdout, /^Copied 2 keys and compared them with the originals\.\n$/);
    assert.deepEqual(await readStore(to), await readStore(from));
    assert.match(
      (await runCli(t, migrate)).stderr,
      /nothing was written, because .* not empty; use an empty store \[ERR_TRANSITION\]\n$/,
    );
  });
});

describe("arguments and refusals", { timeout, concurrency: 3 }, () => {
  test("if there is no store, a command says how to create one but does not create it", async (t) => {
    const folder = await temporaryFolder(t);
    const data = join(folder, "data");
    for (const args of [
      ["keys"],
      ["rotate"],
      ["events"],
      ["plan"],
      ["keys", "revoke", "x", "--yes"],
      ["keys", "export"],
    ]) {
      assert.match(
        await cliRefused(t, [...args, "--data", data]),
        /^jwksd: there is no store at .*\. If no store has been created yet, create one with jwksd serve; if .* \[ERR_STORE_UNAVAILABLE\]\n$/,
      );
    }
    const file = join(folder, "key.json");
    await writeFile(file, JSON.stringify(named("a")));
    const { code } = await runCli(t, ["keys", "import", file, "--data", data, "--dry-run"]);
    assert.deepEqual([code, await readdir(folder)], [0, ["key.json"]]);
    await assert.rejects(access(data));
  });

  test("an import names the key that it rejects and does not create a store", async (t) => {
    const folder = await temporaryFolder(t);
    const data = join(folder, "data");
    const files = {
      "rs256.json": JSON.stringify({ keys: [named("a"), named("r", { ...rsaKey(), use: "sig", alg: "RS256" })] }),
      "twice.json": JSON.stringify({ keys: [named("a"), named("a", named("b"))] }),
    };
    for (const [name, text] of Object.entries(files)) await writeFile(join(folder, name), text);
    const rows: readonly [args: string[], code: string, says: RegExp][] = [
      [["rs256.json"], "ERR_KEY_NOT_P256", /rs256\.json, kid "r"/],
      [["missing.pem"], "ERR_FILE_UNREADABLE", /missing\.pem \(ENOENT\)/],
      [
        ["rs256.json", "--kid", "zz"],
        "ERR_OPTION_INVALID",
        /contains no key with the kid "zz"; choose one of its kids: "a", "r"/,
      ],
      [[], "ERR_OPTION_INVALID", /either a file or --signer/],
    ];
    for (const [[name, ...flags], code, says] of rows) {
      const args = name === undefined ? [] : [join(folder, name), ...flags];
      const { stdout, stderr, code: exit } = await runCli(t, ["keys", "import", ...args, "--data", data]);
      assert.deepEqual([exit, stdout], [1, ""]);
      assert.match(stderr, says);
      assert.ok(stderr.trimEnd().endsWith(`[${code}]`), stderr);
      for (const secret of [...secretsOf(named("a")), ...secretsOf(named("r", rsaKey()))])
        assert.ok(!stderr.includes(secret));
    }
    await assert.rejects(access(data));
    // A duplicate kid is detected when the set is put together, and no part of the set is stored.
    const stderr = await cliRefused(t, ["keys", "import", join(folder, "twice.json"), "--data", data]);
    assert.match(stderr, /\[ERR_KID_USED\]\n$/);
    assert.match(
      (await runCli(t, ["keys", "--data", data])).stdout,
      /^There are no keys\. If there were keys before, /,
    );
  });

  test("a kid that begins with a dash works in any position", async (t) => {
    const kids = ["-active", "-abc", "-Vx", "-h1", "--", "--ab", "-yes", "-".repeat(43)];
    const folder = await temporaryFolder(t);
    const [file, data] = [join(folder, "keys.json"), join(folder, "data")];
    await writeFile(file, keySetText(...kids));
    await cliDone(t, ["keys", "import", file, "--data", data]);
    for (const kid of kids.slice(1).filter((kid) => kid !== "--")) {
      const flags = ["--force", "--dry-run", "--data", data];
      const orders = [
        [kid, ...flags],
        [...flags, kid],
        [...flags, "--", kid],
      ];
      for (const args of orders.slice(0, kid === "-abc" ? 3 : 1)) {
        const { stdout } = await cliDone(t, ["keys", "remove", ...args]);
        assert.ok(stdout.includes(`removed sig ${kid}: `), stdout);
      }
      const { stdout } = await runCli(t, ["keys", "export", kid, "--data", data]);
      assert.equal((JSON.parse(stdout) as { kid?: string }).kid, kid);
    }
  });

  test("a kid can be shortened to a unique prefix, but changes are reported with the full kid", async (t) => {
    const { ok, refused } = await setUp(t, []);
    const folder = await temporaryFolder(t);
    const file = join(folder, "keys.json");
    await writeFile(file, keySetText("2026-11-login", "2026-11-other", "2025-12-login"));
    await ok("keys", "import", file, "--data", join(folder, "data"));
    const data = ["--data", join(folder, "data")];
    const changes = [
      ["keys", "remove", "2025-1", "--force", "--dry-run"],
      ["keys", "revoke", "2025-1", "--dry-run"],
      ["keys", "revoke", "2025-1", "--yes"],
    ];
    for (const args of changes) assert.match(await ok(...args, ...data), /^(removed|revoked) sig 2025-12-login: /m);
    const exported = JSON.parse(await ok("keys", "export", "2026-11-o", ...data)) as { kid: string };
    assert.equal(exported.kid, "2026-11-other");
    const out = ["--private", "--yes", "--out", join(folder, "out.jwk")];
    assert.match(await ok("keys", "export", "2026-11-o", ...out, ...data), /, kid 2026-11-other$/m);
    const several = await refused("ERR_OPTION_INVALID", "keys", "revoke", "2026-11", "--yes", ...data);
    assert.match(several, /2 kids begin with "2026-11"; add more characters:\n- 2026-11-login, .*\n- 2026-11-other, /);
  });

  test("the issuer is checked first, and a password in it is not echoed", async (t) => {
    for (const command of [["keys"], ["plan"], ["token", "--aud", "x"], ["rotate", "--dry-run"]]) {
      const run = await runCli(t, [...command, "--issuer", "https://user:secret@op.example", "--data", "no/folder"]);
      assert.deepEqual([run.code, run.stdout], [1, ""]);
      assert.match(
        run.stderr,
        /^jwksd: the issuer contains a user name or password; remove it \[ERR_ISSUER_INVALID\]\n$/,
      );
    }
  });

  test("key files that jwksd does not manage are refused", async (t) => {
    assert.match(
      await cliRefused(t, ["keys"], { JWKSD_KEYS: "/etc/jwksd/keys" }),
      /the keys in \/etc\/jwksd\/keys, which jwksd does not manage.*\[ERR_OPTION_INVALID\]/,
    );
  });
});
