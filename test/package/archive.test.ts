import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { readFile, rm, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { describe, test } from "node:test";
import { promisify } from "node:util";
import packageJson from "../../package.json" with { type: "json" };
import { archive, archiveFolder, skipWithoutArchive } from "../support/archive.ts";
import { isPermissive } from "../support/licenses.ts";
import { brokenLinks } from "../support/links.ts";
import { type LogLine, temporaryFolder } from "../support/service.ts";
import { createSoftHsm, skipWithoutPkcs11 } from "../support/softhsm.ts";

interface Licensed {
  readonly license?: { readonly id?: string };
}

interface Bom {
  readonly metadata: { readonly component: { readonly hashes: readonly { readonly content: string }[] } };
  readonly components: readonly { readonly name: string; readonly licenses?: readonly Licensed[] }[];
  readonly dependencies: readonly { readonly ref: string; readonly dependsOn: readonly string[] }[];
}

/** Optional peers that the command line loads. */
const optional = [
  "@aws-sdk/client-kms",
  "@azure/identity",
  "@azure/keyvault-keys",
  "@google-cloud/kms",
  "pg",
  "pkcs11js",
  "prom-client",
];
const run = promisify(execFile);
const pathOf = (ending: string): string => join(archiveFolder, `${archive}.${ending}`);
const read = (ending: string): Promise<string> => readFile(pathOf(ending), "utf8");

describe(
  "the archive",
  { skip: skipWithoutArchive("its checksums, its parts and its commands"), timeout: 120_000 },
  () => {
    test("matches the checksums in the file next to it", async () => {
      const endings = ["tar.gz", "cdx.json", "licenses.txt"];
      const hashes = await Promise.all(
        endings.map(async (ending) =>
          createHash("sha256")
            .update(await readFile(pathOf(ending)))
            .digest("hex"),
        ),
      );
      assert.equal(
        await read("sha256"),
        endings.map((ending, index) => `${hashes[index]}  ${archive}.${ending}\n`).join(""),
      );
      const { metadata } = JSON.parse(await read("cdx.json")) as Bom;
      assert.equal(metadata.component.hashes[0]?.content, hashes[0]);
    });

    test("contains the required and the optional packages", async () => {
      const { components, dependencies } = JSON.parse(await read("cdx.json")) as Bom;
      const names = new Set(components.map(({ name }) => name));
      for (const name of ["node", ...Object.keys(packageJson.dependencies), ...optional])
        assert.ok(names.has(name), name);
      assert.ok(!names.has("typescript"));
      const refs = new Set(dependencies.map(({ ref }) => ref));
      for (const { dependsOn } of dependencies) for (const ref of dependsOn) assert.ok(refs.has(ref), ref);
      const licenses = await read("licenses.txt");
      for (const name of ["jose", "pg", "commander"]) assert.match(licenses, new RegExp(`^== ${name}@`, "m"));
    });

    test("contains only packages with permissive licenses", async () => {
      const { components } = JSON.parse(await read("cdx.json")) as Bom;
      const others = components.filter(
        ({ licenses = [] }) =>
          licenses.length === 0 || !licenses.every(({ license }) => isPermissive(license?.id ?? "")),
      );
      assert.deepEqual(others, []);
    });

    test("contains every file that its pages link to", async (t) => {
      const folder = await temporaryFolder(t);
      await run("tar", ["-xzf", pathOf("tar.gz"), "-C", folder]);
      assert.deepEqual(await brokenLinks(join(folder, "jwksd")), []);
    });

    test("serves keys even after its folder has been removed, and reports the modules that it can no longer load", async (t) => {
      const cwd = await temporaryFolder(t);
      await run("tar", ["-xzf", pathOf("tar.gz"), "-C", cwd]);
      const args = ["serve", "--port", "0", "--admin", "127.0.0.1:0", "--data", join(cwd, "data"), "--json-logs"];
      const child = spawn(join(cwd, "jwksd/jwksd"), args, { stdio: ["ignore", "pipe", "ignore"], env: {} });
      t.after(() => child.kill());
      const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
      const logged = async (isMeant: (line: LogLine) => boolean): Promise<LogLine> => {
        for (;;) {
          const line = JSON.parse(String((await lines.next()).value)) as LogLine;
          if (isMeant(line)) return line;
        }
      };
      const { admin, jwksUri } = await logged(({ msg }) => msg === "started");
      await rm(join(cwd, "jwksd"), { recursive: true });
      assert.equal((await fetch(String(jwksUri))).status, 200);
      const response = await fetch(`${String(admin)}/metrics`);
      assert.equal(response.status, 500);
      assert.match(await response.text(), /"title":"Internal Server Error"/);
      const { path } = await logged(({ msg }) => msg.startsWith("failed to render a page: "));
      assert.equal(path, "/metrics");
    });

    test(
      "runs from any folder, through a link, and with a PKCS#11 module",
      { skip: skipWithoutPkcs11() },
      async (t) => {
        const cwd = await temporaryFolder(t);
        await run("tar", ["-xzf", pathOf("tar.gz"), "-C", cwd]);
        await symlink("jwksd/jwksd", join(cwd, "linked"));
        const env = { PATH: "/usr/bin:/bin" };
        const { stdout } = await run("./linked", ["--version"], { cwd, env });
        assert.match(stdout, new RegExp(`^jwksd ${packageJson.version} \\(Node.js ${process.versions.node}, `));
        const token = await createSoftHsm(t);
        token.pkcs11Tool("--keypairgen", "--key-type", "EC:prime256v1", "--label", "k", "--id", "01");
        const pkcs11 = { modulePath: token.modulePath, pin: { file: token.pinFile } };
        await writeFile(join(cwd, "signers.json"), JSON.stringify({ pkcs11 }));
        const uri = `${token.uri};object=k`;
        const args = ["signer", "check", uri, "--signers", "signers.json", "--probes", "2"];
        const withToken = { ...env, SOFTHSM2_CONF: process.env["SOFTHSM2_CONF"] };
        assert.match((await run("./linked", args, { cwd, env: withToken })).stdout, /^ok +signatures 2, /m);
      },
    );
  },
);
