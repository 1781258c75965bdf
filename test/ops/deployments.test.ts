import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile, readdir, symlink, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { type TestContext, describe, test } from "node:test";
import { promisify } from "node:util";
import { parse, parseAllDocuments } from "yaml";
import { hostAndPort } from "../../src/service/config/addresses.ts";
import { resolveSettings } from "../../src/service/config/settings.ts";
import { skipWithoutMounts } from "../support/namespaces.ts";
import { root, runBlocks, sections } from "../support/page-blocks.ts";
import { part, skipWithout } from "../support/parts.ts";
import { temporaryFolder } from "../support/service.ts";

interface Selector {
  readonly matchLabels: object;
}

/** The members that are checked, of several kinds. */
interface Spec {
  readonly replicas: number;
  readonly selector: Selector;
  readonly podSelector: Selector;
  readonly ipFamilyPolicy?: string;
  readonly strategy: { readonly rollingUpdate: object };
  readonly egress: readonly { readonly to?: readonly { readonly ipBlock?: { readonly cidr: string } }[] }[];
  readonly template: {
    readonly metadata: { readonly labels: object };
    readonly spec: { readonly containers: readonly [{ readonly env: readonly { name: string; value: string }[] }] };
  };
}

interface Resource {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly labels?: object };
  readonly spec: Spec;
}

const ops = join(root, "ops");
const folder = join(ops, "kubernetes");
const read = (path: string): Promise<string> => readFile(path, "utf8");
const yaml = async (path: string): Promise<unknown> => parse(await read(path), { merge: true });

async function resources(): Promise<readonly Resource[]> {
  const { resources } = (await yaml(join(folder, "kustomization.yaml"))) as { readonly resources: readonly string[] };
  const files = (await readdir(folder)).filter((name) => name !== "kustomization.yaml");
  assert.deepEqual(resources.toSorted(), files.toSorted());
  const texts = await Promise.all(files.map((file) => read(join(folder, file))));
  return texts.flatMap((text) => parseAllDocuments(text).map((document) => document.toJS() as Resource));
}

/** Returns the module with the model of a kind. */
function modelOf({ apiVersion }: Resource): string {
  const isOperator = apiVersion.startsWith("monitoring.coreos.com/");
  return `${isOperator ? "@kubernetes-models/prometheus-operator" : "kubernetes-models"}/${apiVersion}`;
}

/** Returns the compiler's errors for resources as literals of their types, which define all members, by file. */
async function typeErrors(t: TestContext, files: Readonly<Record<string, readonly Resource[]>>): Promise<string[]> {
  const cwd = await temporaryFolder(t);
  await symlink(join(root, "node_modules"), join(cwd, "node_modules"));
  await writeFile(join(cwd, "package.json"), '{"type": "module"}');
  for (const [file, all] of Object.entries(files)) {
    const texts = all.map((resource, index) => {
      const type = `import("${modelOf(resource)}").I${resource.kind}`;
      return `export const resource${index}: ${type} = ${JSON.stringify(resource, null, 2)};\n`;
    });
    await writeFile(join(cwd, file), texts.join(""));
  }
  const tsc = join(root, "node_modules/typescript/bin/tsc");
  const options = ["--noEmit", "--strict", "--skipLibCheck", "--module", "nodenext", "--types", "node"];
  const { stdout } = await promisify(execFile)(process.execPath, [tsc, ...options, ...Object.keys(files)], {
    cwd,
  }).catch((error: { readonly stdout: string }) => error);
  return stdout.trimEnd().split("\n");
}

describe("ops/kubernetes", () => {
  test("every resource matches its API and has no unknown member", async (t) => {
    const all = await resources();
    for (const resource of all) {
      const models = (await import(modelOf(resource))) as Record<string, new (data: object) => { validate(): void }>;
      const Model = models[resource.kind] ?? assert.fail(resource.kind);
      new Model(resource).validate();
    }
    const misspelt = { ...all.find(({ kind }) => kind === "PodDisruptionBudget"), specs: {} } as unknown as Resource;
    // One run of the compiler, because loading the Kubernetes types takes a second.
    const [found = "", ...others] = await typeErrors(t, { "misspelt.ts": [misspelt], "resources.ts": all });
    assert.match(found, /^misspelt\.ts.*specs/, "the check finds unknown members");
    assert.deepEqual(others, []);
  });

  test("alerts.yaml is generated from ops/alerts.yml", async () => {
    const script = join(root, "scripts/kubernetes-alerts.ts");
    const { stdout } = await promisify(execFile)(process.execPath, [script]);
    const command = "node scripts/kubernetes-alerts.ts > ops/kubernetes/alerts.yaml";
    assert.equal(await read(join(folder, "alerts.yaml")), stdout, command);
    const { spec } = parse(stdout) as { readonly spec: unknown };
    assert.deepEqual(spec, await yaml(join(ops, "alerts.yml")));
  });

  test("the services, the budget, the policy and the monitor select the pods, and the settings are valid", async () => {
    const all = await resources();
    const resourceOf = (kind: string, name = "jwksd"): Resource =>
      all.find((resource) => resource.kind === kind && resource.metadata.name === name) ?? assert.fail(kind);
    const specOf = (kind: string): Spec => resourceOf(kind).spec;
    const { replicas, selector, template } = specOf("Deployment");
    assert.equal(replicas, 3);
    const { labels } = template.metadata;
    for (const selected of [
      selector.matchLabels,
      specOf("Service").selector,
      resourceOf("Service", "jwksd-admin").spec.selector,
      specOf("PodDisruptionBudget").selector.matchLabels,
      specOf("NetworkPolicy").podSelector.matchLabels,
    ])
      assert.deepEqual(selected, labels);
    assert.deepEqual(
      specOf("ServiceMonitor").selector.matchLabels,
      resourceOf("Service", "jwksd-admin").metadata.labels,
    );

    const { configMapGenerator } = (await yaml(join(folder, "kustomization.yaml"))) as {
      readonly configMapGenerator: readonly [{ readonly literals: readonly string[] }];
    };
    const literals = configMapGenerator[0].literals.map((literal) => literal.split(/=(.*)/s, 2) as [string, string]);
    const env = template.spec.containers[0].env.map(({ name, value }) => [name, value] as const);
    const environment = Object.fromEntries([...literals, ...env]);
    const { issuer, store, requireStore, host, admin: address } = await resolveSettings({ flags: {}, environment });
    assert.deepEqual(
      [issuer, store, requireStore],
      ["https://login.example.com", "postgres://jwksd@postgresql/jwksd?sslmode=verify-full", false],
    );
    // All of the pod's addresses, of both families.
    assert.deepEqual([host, hostAndPort(address)], ["::", { host: "::", port: 9901 }]);
    for (const name of ["jwksd", "jwksd-admin"])
      assert.equal(resourceOf("Service", name).spec.ipFamilyPolicy, "PreferDualStack");
    // An update starts a pod before it stops one.
    assert.deepEqual(specOf("Deployment").strategy.rollingUpdate, { maxUnavailable: 0, maxSurge: 1 });
    // The DNS cache on each node has no labels.
    const [dns] = specOf("NetworkPolicy").egress;
    assert.ok(dns?.to?.some(({ ipBlock }) => ipBlock?.cidr === "169.254.20.10/32"));
  });
});

test("ops/compose.yml has two replicas with valid settings and only the named volumes", async () => {
  interface Compose {
    readonly services: Readonly<
      Record<string, { environment?: Record<string, string>; volumes?: string[]; depends_on?: object }>
    >;
    readonly volumes: object;
  }
  const { services, volumes } = (await yaml(join(ops, "compose.yml"))) as Compose;
  const replicas = Object.entries(services).filter(([name]) => name.startsWith("jwksd-"));
  assert.equal(replicas.length, 2);
  for (const [, { environment = {} }] of replicas) {
    const values = Object.entries(environment).map(([name, value]) => [name, value.replace(/^\$\{\w+:-(.*)\}$/, "$1")]);
    const given = Object.fromEntries(values) as Record<string, string>;
    const { store } = await resolveSettings({ flags: {}, environment: given });
    assert.equal(store, "postgres://jwksd@postgresql/jwksd");
  }
  const used = Object.values(services).flatMap(({ volumes = [] }) =>
    volumes.map((volume) => volume.split(":")[0] ?? ""),
  );
  assert.deepEqual(used.toSorted(), Object.keys(volumes).toSorted());
  for (const { depends_on = {} } of Object.values(services)) {
    const names = Array.isArray(depends_on) ? (depends_on as string[]) : Object.keys(depends_on);
    for (const name of names) assert.ok(Object.hasOwn(services, name), name);
  }
});

async function analyze(...args: readonly string[]): Promise<string> {
  const { stdout, stderr } = await promisify(execFile)(part("systemd-analyze"), args);
  return stdout + stderr;
}

/** Returns a unit with its optional lines, which are comments. */
const wholeUnit = async (unit: string): Promise<string> =>
  (await read(join(ops, unit))).replaceAll(/^# (?=[A-Z]\w+=)/gm, "");

test("ops/guard/jwksd-guard.service, including its optional lines, has the socket and the nonce secret from the guide", async () => {
  const unit = await wholeUnit("guard/jwksd-guard.service");
  const value = (name: string): string => RegExp(`^${name}=(.*)$`, "m").exec(unit)?.[1] ?? assert.fail(name);
  const page = await read(join(root, "docs/guard.md"));
  const [, json = ""] = /```json\n(\{[^`]*"socketGroup"[^`]*)```/.exec(page) ?? [];
  const { listen, socketGroup, nonceSecretFile } = JSON.parse(json) as Record<string, string>;
  const [id, secret = ""] = value("LoadCredential").split(":");
  assert.deepEqual(
    [listen, socketGroup, nonceSecretFile],
    [`/run/${value("RuntimeDirectory")}/guard.sock`, value("Group"), `/run/credentials/jwksd-guard.service/${id}`],
  );
  assert.ok(page.includes(`> ${secret})`), secret);
  // The group enters the folder, and a later line allows what ~@privileged forbids.
  assert.equal(value("RuntimeDirectoryMode"), "0750");
  assert.match(unit, /SystemCallFilter=~@privileged [^]*SystemCallFilter=@chown\n/);
});

for (const unit of ["jwksd.service", "guard/jwksd-guard.service"]) {
  describe(`ops/${unit}`, { skip: skipWithout("systemd-analyze") }, () => {
    test("systemd accepts every line", async (t) => {
      const file = join(await temporaryFolder(t), basename(unit));
      // It must name an existing program.
      await writeFile(file, (await wholeUnit(unit)).replaceAll("/usr/local/bin/jwksd", process.execPath));
      assert.equal(await analyze("verify", "--man=no", file), "");
    });

    test("systemd rates the service's exposure level as low", async () => {
      const report = await analyze("security", "--offline=yes", "--no-pager", join(ops, unit));
      const [, exposure] =
        /Overall exposure level for [\w-]+\.service: ([\d.]+) OK/.exec(report) ?? assert.fail(report);
      assert.ok(Number(exposure) <= 2, exposure);
    });
  });
}

// Runs the code blocks in docs/install.md verbatim, one by one.

const skip = skipWithoutMounts("the code blocks in docs/install.md") || skipWithout("bash", "ip", "openssl", "curl");

/** Programs that cannot run on this machine. A stand-in for each records its arguments. */
const standIns = ["systemctl", "podman", "docker", "kubectl"];

const blocksOf = async (section: string): Promise<readonly string[]> =>
  (await sections("docs/install.md")).get(section) ?? assert.fail(section);

/** Runs a section's blocks, then lines from the test. */
const run = async (t: TestContext, section: string, lines = "") =>
  runBlocks(t, [...(await blocksOf(section)), lines], { programs: ["test/ops/stand-ins"] });

describe("the code blocks in docs/install.md work as written", { skip }, () => {
  test("systemd: the service responds, commands read its store, and it refuses to start if its store is lost", async (t) => {
    t.diagnostic(`NOT TESTED with the real programs: ${standIns.join(", ")}`);
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

  test("the image: the service responds, and the replacement container requires its store", async (t) => {
    const { stdout } = await run(
      t,
      "The image",
      `curl --silent --fail http://127.0.0.1:9900/jwks >"$STATE/jwks"; tr '\\0' '\\n' <"/proc/$(cat "$STATE/pid")/environ" | grep REQUIRE`,
    );
    assert.match(stdout, /JWKSD_REQUIRE_STORE=true\n$/);
  });

  test("Compose: the secrets reach the services, and the second start requires the store", async (t) => {
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
