import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { type Code, codes, examine } from "../../src/doctor/index.ts";
import { cited } from "../../src/doctor/verifiers/cited-failures.ts";
import { breaksOf } from "../../src/doctor/verifiers/failing-verifiers.ts";
import type { Row } from "../../src/doctor/verifiers/outcome-row.ts";
import { rows, versions } from "../../src/doctor/verifiers/test-outcomes.ts";
import { binary } from "../support/bundle.ts";
import { skipped } from "../support/parts.ts";
import { isSoak, soak } from "../support/soak.ts";
import { type Client, clients } from "./clients.ts";
import { installedVersion, libraries, startDebian } from "./debian.ts";
import { weak } from "./fixtures.ts";
import { refusesGood, startServers, tryAll } from "./matrix.ts";
import { at, bytes, published, sound } from "./observed.ts";

/**
 * Reports whether a cell differs between two runs. jwcrypto searches the keys in the order of their hashes, which is different in each run, so
 * it uses the wrong twin every other time. PyJWT 2.6.0 refuses a kid that is not a string since a Debian security update, which kept that
 * version.
 */
const varies = (code: string, name: string): boolean =>
  (code === "JWKS_KID_DUPLICATE" && name === "jwcrypto") || (code === "JWKS_KID_TYPE" && name === "PyJWT");

/** Returns the rows with the outcomes of some verifiers. @param columns the verifiers that the rows are about, in order */
const rowsAbout = (names: readonly string[], all: readonly Row[], columns: readonly string[]): unknown[] =>
  all.map(({ code, form, outcomes }) => {
    const compared = names.filter((name) => !varies(code, name));
    return { code, form, ...Object.fromEntries(compared.map((name) => [name, outcomes[columns.indexOf(name)]])) };
  });

const rerun = "run: node test/doctor/table.ts";

describe("src/doctor/verifiers/test-outcomes.ts", () => {
  let servers: Awaited<ReturnType<typeof startServers>>;
  before(async () => void (servers = await startServers()));
  after(() => servers.stop());

  const compare = async (tried: readonly Client[]): Promise<void> => {
    const names = tried.map(({ name }) => name);
    for (const client of tried) {
      assert.equal(await refusesGood(client, servers.origins), undefined, `${client.name} refuses a good provider`);
    }
    const found = await tryAll(tried, servers.origins);
    const recorded = rowsAbout(names, rows, Object.keys(versions));
    assert.deepEqual(rowsAbout(names, found, names), recorded, `the table is out of date; ${rerun}`);
  };

  test("contains the installed versions of the npm verifiers", () => {
    for (const { name, version } of clients)
      assert.equal(version, versions[name], `${name} has another version; ${rerun}`);
  });

  // In npm test, one of them is enough, because the versions are compared.
  test("contains the outcomes of the npm verifiers", () => compare(clients.slice(0, soak(clients.length, 1))));

  // These take too long for npm test.
  if (isSoak) {
    const missing = libraries.filter((library) => installedVersion(library.package) === undefined);
    const packages = missing.map((library) => library.package).join(", ");
    const skip =
      missing.length > 0 && !process.env["CI"]
        ? skipped(`${packages} not installed; install with: sudo scripts/install-test-services`)
        : false;
    test("contains the outcomes of the Debian verifiers", { skip }, async () => {
      const { clients: started, stop } = startDebian(libraries, servers.certificate, servers.folder);
      for (const { name, version } of started) assert.equal(version, versions[name], `${name}: ${rerun}`);
      await compare(started).finally(stop);
    });
  }
});

const named = (code: Code) =>
  Object.fromEntries(breaksOf(code).map(({ client, fails, inSomeForms }) => [client, [fails, inSomeForms ?? false]]));

describe("breaksOf", () => {
  test("separates verifiers that fail on every form of a finding from those that fail on only some", () => {
    assert.deepEqual(named("JWKS_NOT_JSON")["jose"], ["every token", false]);
    assert.deepEqual(named("JWKS_PRIVATE_MEMBERS")["jose"], ["its tokens", true]);
    assert.deepEqual(named("JWKS_KID_TYPE")["aws-jwt-verify"], ["every token", false]);
    assert.equal(named("JWKS_RSA_LEADING_ZERO")["jose"], undefined);
  });

  test("cites public sources for versions that were not run", () => {
    for (const code of Object.keys(codes) as Code[]) {
      for (const { client, version, source = "" } of cited[code] ?? []) {
        assert.match(source, /^https:\/\/github\.com\/[\w.-]+\/[\w.-]+\/(issues\/\d+|blob\/[\w./-]+#L\d+)$/);
        assert.notEqual(version, versions[client], `${client} at ${code}`);
      }
    }
  });
});

test("jwksd/doctor imports no package except jose, and nothing from Node", async () => {
  const seen = new Set<string>();
  const packages = new Set<string>();
  const visit = async (file: URL): Promise<void> => {
    if (seen.has(file.href)) return;
    seen.add(file.href);
    const text = await readFile(file, "utf8");
    for (const [, name = ""] of text.matchAll(/^(?:import|export) [^;]*?from "([^"]+)";/gm)) {
      if (name.startsWith(".")) await visit(new URL(name, file));
      // Its implementation for runtimes without their own.
      else if (name === "#crypto") await visit(new URL("../../src/keys/crypto/web.ts", import.meta.url));
      // Parts of jose count as jose.
      else packages.add(name.replace(/^jose\/.*/, "jose"));
    }
    assert.doesNotMatch(text, /\b(Buffer|process|require)\b[.(]/, file.href);
  };
  await visit(new URL("../../src/doctor/index.ts", import.meta.url));
  assert.ok(seen.size > 15, `${seen.size} files`);
  assert.deepEqual([...packages], ["jose"]);
});

for (const [runtime, ...args] of [["bun"], ["deno", "run", "--no-prompt", "--allow-read"]] as const) {
  test(`the doctor finds the same on ${runtime} as on Node`, async () => {
    const rsa = Object.entries(weak).map(([kid, key]) => published(kid, key, "RS256"));
    const body = bytes({ keys: [sound, { ...sound, kid: "off", y: sound["x"] }, ...rsa] });
    const expected = (await examine({ at, set: { body } })).map(({ code, seen }) => [code, seen]);
    const script = new URL("anywhere-run.ts", import.meta.url).pathname;
    const input = JSON.stringify({ at, body: Buffer.from(body).toString() });
    const { stdout } = await promisify(execFile)(binary(runtime), [...args, script, input]);
    assert.deepEqual(JSON.parse(stdout), expected);
    assert.ok(expected.length >= 6);
  });
}
