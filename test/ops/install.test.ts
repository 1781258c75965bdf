import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { type TestContext, describe, test } from "node:test";
import { parse } from "yaml";
import { resolveSettings } from "../../src/service/config/settings.ts";
import { skipWithoutMounts } from "../support/mounts.ts";
import { root, runBlocks, sections } from "../support/page-blocks.ts";
import { skipWithout } from "../support/parts.ts";

// The blocks of docs/install.md, as they stand there, one after the other.

const skip = skipWithoutMounts("the blocks of docs/install.md") || skipWithout("bash", "ip", "openssl", "curl");

/** What there is no room for on this machine; a stand-in shows what it is given. */
const standIns = ["systemctl", "podman", "docker", "kubectl"];

const blocksOf = async (section: string): Promise<readonly string[]> =>
  (await sections("docs/install.md")).get(section) ?? assert.fail(section);

/** Runs the blocks of a section, then lines of the test. */
const run = async (t: TestContext, section: string, lines = "") =>
  runBlocks(t, [...(await blocksOf(section)), lines], { programs: ["test/ops/stand-ins"] });

describe("the blocks of docs/install.md work as they stand", { skip }, () => {
  test("systemd: the service answers; commands read its store; after that, a lost store is refused", async (t) => {
    t.diagnostic(`NOT TESTED with the real ones: ${standIns.join(", ")}`);
    const { stdout } = await run(
      t,
      "systemd",
      `curl --silent --fail http://127.0.0.1:9900/jwks >"$STATE/jwks"
       stat -c %a /etc/jwksd/wrapping.key
       cp -R /etc/jwksd "$STATE/before"
       set +e
       ${(await blocksOf("systemd"))[0]}
       set -e
       diff -r /etc/jwksd "$STATE/before"
       rm /var/lib/jwksd/*
       ! systemctl restart jwksd 2>"$STATE/refusal"
       grep -o ERR_STORE_EMPTY "$STATE/refusal"
       ls -A /var/lib/jwksd`,
    );
    assert.match(stdout, /^USE|KID/);
    assert.match(stdout, /\n600\nERR_STORE_EMPTY\n$/);
  });

  test("the image: the service answers, and its successor requires the store", async (t) => {
    const { stdout } = await run(
      t,
      "The image",
      `curl --silent --fail http://127.0.0.1:9900/jwks >"$STATE/jwks"; tr '\\0' '\\n' <"/proc/$(cat "$STATE/pid")/environ" | grep REQUIRE`,
    );
    assert.match(stdout, /JWKSD_REQUIRE_STORE=true\n$/);
  });

  test("Compose: the secrets are those that the file wants, and the second start requires the store", async (t) => {
    const { state } = await run(t, "Compose");
    interface Compose {
      readonly services: Readonly<Record<string, { readonly environment: Readonly<Record<string, string>> }>>;
    }
    const { services } = parse(await readFile(join(root, "ops/compose.yml"), "utf8"), { merge: true }) as Compose;
    for (const [file, expected] of [
      ["env0", false],
      ["env1", true],
    ] as const) {
      const lines = (await readFile(join(state, file), "utf8")).trimEnd().split("\n");
      const given = Object.fromEntries(lines.map((line) => line.split(/=(.*)/, 2) as [string, string]));
      const value = (text: string): string =>
        text.replaceAll(
          /\$\{(\w+)(?::\?|:-(.*?))\}/g,
          (_, name: string, fallback) => given[name] ?? fallback ?? assert.fail(name),
        );
      const settings = Object.entries(services["jwksd-a"]?.environment ?? {});
      const environment = Object.fromEntries(settings.map(([name, text]) => [name, value(text)]));
      assert.equal((await resolveSettings({ flags: {}, environment })).requireStore, expected);
      assert.match(environment["JWKSD_WRAPPING_KEYS"] ?? "", /^[\w-]{43}=$/);
      assert.match(environment["PGPASSWORD"] ?? "", /^[\da-f]{64}$/);
    }
  });

  test("Kubernetes: the secret has its files, and the second start requires the store", async (t) => {
    const { state, stdout } = await run(t, "Kubernetes", "stat -c %a wrapping.key database-password");
    assert.match(stdout, /600\n600\n$/);
    assert.match(await readFile(join(state, "secret-wrapping.key"), "utf8"), /^[\w-]{43}=\n$/);
    assert.equal(await readFile(join(state, "secret-database-password"), "utf8"), "PASSWORD");
    for (const [folder, expected] of [
      ["applied0", "JWKSD_REQUIRE_STORE=false"],
      ["applied1", "JWKSD_REQUIRE_STORE=true"],
    ] as const) {
      const text = await readFile(join(state, folder, "kustomization.yaml"), "utf8");
      const { configMapGenerator } = parse(text) as {
        readonly configMapGenerator: readonly [{ readonly literals: readonly string[] }];
      };
      assert.ok(configMapGenerator[0].literals.includes(expected), expected);
    }
  });
});
