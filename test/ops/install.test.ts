import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { chmod, cp, mkdir, readFile, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { type TestContext, describe, test } from "node:test";
import { promisify } from "node:util";
import { parse } from "yaml";
import { resolveSettings } from "../../src/service/config/settings.ts";
import { mounted, skipWithoutMounts } from "../support/mounts.ts";
import { skipWithout } from "../support/parts.ts";
import { cliCommand, temporaryFolder, withoutSettings } from "../support/service.ts";

// The blocks of docs/install.md, as they stand there, one after the other. They run as root of a namespace with an /etc, a /usr/local/bin, a
// /var/lib and a network of its own, in a folder like a clone after the build.

const root = resolve(import.meta.dirname, "../..");
const skip = skipWithoutMounts("the blocks of docs/install.md") || skipWithout("ip", "openssl", "curl");

/** Sections with blocks that other tests run. */
const elsewhere: Readonly<Record<string, string>> = {
  npm: "test/package/package.test.ts",
  "The executable": "test/package/executable.test.ts",
  "Help and completion": "test/cli/completion.test.ts",
};
/** What there is no room for on this machine; a stand-in shows what it is given. */
const standIns = ["systemctl", "podman", "docker", "kubectl"];

/** The blocks of shell by section, in order. */
async function sections(): Promise<ReadonlyMap<string, readonly string[]>> {
  const text = await readFile(join(root, "docs/install.md"), "utf8");
  const all = text.split(/^## /m).slice(1);
  return new Map(
    all.map((section) => {
      const [title = ""] = section.split("\n", 1);
      const blocks = [...section.matchAll(/^( *)```sh\n([^]*?)^ *```$/gm)];
      return [title, blocks.map(([, indent = "", block = ""]) => block.replaceAll(new RegExp(`^${indent}`, "gm"), ""))];
    }),
  );
}

async function program(path: string, text: string): Promise<void> {
  await writeFile(path, `#!/bin/sh\n${text}\n`);
  await chmod(path, 0o755);
}

/** Runs the blocks of a section, then lines of the test. */
async function run(t: TestContext, section: string, lines = "") {
  const folder = await temporaryFolder(t);
  const [clone, state, etc, bin] = [
    join(folder, "clone"),
    join(folder, "state"),
    join(folder, "etc"),
    join(folder, "bin"),
  ];
  for (const made of [join(clone, "dist/bin"), join(clone, "scripts"), state, etc])
    await mkdir(made, { recursive: true });
  await cp(join(root, "ops"), join(clone, "ops"), { recursive: true });
  await cp(join(root, "test/ops/stand-ins"), bin, { recursive: true });
  await program(join(clone, "dist/bin/jwksd"), `exec ${cliCommand.join(" ")} "$@"`);
  await program(join(bin, "npm"), '[ "$*" = "run build:binary" ]');
  await program(join(clone, "scripts/build-image"), "install -m 755 dist/bin/jwksd /usr/local/bin/jwksd");
  const own = [
    `cp -R /etc/. ${etc} 2>/dev/null || true; mount --bind ${etc} /etc`,
    "mount -t tmpfs tmpfs /usr/local/bin; mount -t tmpfs tmpfs /var/lib; ip link set lo up",
    `cd ${clone}`,
  ].join("; ");
  const blocks = (await sections()).get(section) ?? assert.fail(section);
  const script = join(folder, "script");
  await writeFile(script, [...blocks, lines].join("\n"));
  const [command, ...args] = mounted(own, folder, ["-n", "--pid", "--fork", "--kill-child", "--mount-proc"]);
  const env = { ...withoutSettings(process.env), STATE: state, PATH: `${bin}:/usr/local/bin:${process.env["PATH"]}` };
  const { stdout } = await promisify(execFile)(command, [...args, "sh", "-eu", script], { env });
  return { stdout, state };
}

test("each section of docs/install.md with blocks is run, here or elsewhere", async () => {
  const source = await readFile(import.meta.filename, "utf8");
  for (const [title, blocks] of await sections()) {
    if (blocks.length === 0 || elsewhere[title] !== undefined) continue;
    assert.match(source, new RegExp(`run\\(\\s*t,\\s*"${title}"`));
  }
});

describe("the blocks of docs/install.md work as they stand", { skip, timeout: 120_000 }, () => {
  test("systemd: the service answers; commands read its store; after that, a lost store is refused", async (t) => {
    t.diagnostic(`NOT TESTED with the real ones: ${standIns.join(", ")}`);
    const { stdout } = await run(
      t,
      "systemd",
      `curl --silent --fail http://127.0.0.1:9900/jwks >"$STATE/jwks"
       stat -c %a /etc/jwksd/wrapping.key
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
    const { state } = await run(t, "Kubernetes");
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
