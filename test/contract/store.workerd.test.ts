import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { after } from "node:test";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { StoreError } from "../../src/base/errors.ts";
import type { DueIssuer, Reading, Register } from "../../src/rotation/store/register.ts";
import { type RegisterUnderTest, checkRegister } from "../../src/testing/register.ts";
import { binary, bundledText } from "../support/bundle.ts";
import { type Cuttable, cuttable } from "../support/cuttable.ts";
import { sample } from "../support/samples.ts";
import { eventually, freePort, isListening, temporaryFolder } from "../support/service.ts";

const here = (file: string): string => fileURLToPath(new URL(file, import.meta.url));
const folder = await temporaryFolder({ after });
await mkdir(join(folder, "disk"));
const d1 = await sample({ after }, "examples/docs/store-d1.mts");
const durableObject = await sample({ after }, "examples/docs/store-durable-object.mts");
const entry = join(folder, "entry.ts");
await writeFile(
  entry,
  `import { storeOf as d1 } from "${d1}";
import { storeOf as durableObject } from "${durableObject}";
import { worker } from "${here("store-worker.ts")}";
export { KeysObject } from "${durableObject}";
export default worker({ d1, "durable-object": durableObject });`,
);
await writeFile(join(folder, "worker.js"), await bundledText(entry));
await writeFile(join(folder, "d1.js"), await bundledText(here("store-d1.ts")));
const [port, controlPort] = [await freePort(), await freePort()];
await writeFile(
  join(folder, "config.capnp"),
  `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (name = "registers", worker = .registers), (name = "d1", worker = .d1),
    (name = "disk", disk = (path = "${join(folder, "disk")}", writable = true)),
    (name = "internet", network = (allow = ["local"])),
  ],
  sockets = [
    (name = "http", address = "127.0.0.1:${port}", http = (), service = "registers"),
    (name = "control", address = "127.0.0.1:${controlPort}", http = (), service = "d1"),
  ],
);
const registers :Workerd.Worker = (
  modules = [ (name = "worker", esModule = embed "worker.js") ],
  bindings = [
    (name = "KEYS", durableObjectNamespace = "KeysObject"),
    (name = "DB", wrapped = (
      moduleName = "cloudflare-internal:d1-api",
      innerBindings = [ (name = "fetcher", service = "d1") ],
    )),
  ],
  durableObjectNamespaces = [ (className = "KeysObject", uniqueKey = "keys", enableSql = true) ],
  durableObjectStorage = (localDisk = "disk"),
  compatibilityDate = "2026-10-01",
);
const d1 :Workerd.Worker = (
  modules = [ (name = "d1", esModule = embed "d1.js") ],
  bindings = [ (name = "DATABASE", durableObjectNamespace = "Database") ],
  durableObjectNamespaces = [ (className = "Database", uniqueKey = "d1", enableSql = true) ],
  durableObjectStorage = (localDisk = "disk"),
  compatibilityDate = "2026-10-01",
);`,
);

/** Starts workerd; gives what ends it at once. */
async function start(): Promise<() => Promise<void>> {
  const child = spawn(binary("workerd"), ["serve", join(folder, "config.capnp")], {
    stdio: ["ignore", "inherit", "inherit"],
  });
  const closed = new Promise<void>((resolve) => child.once("close", () => resolve()));
  await eventually("workerd listens", () => isListening(port));
  return async () => {
    child.kill("SIGKILL");
    await closed;
  };
}
let end = await start();
after(() => end());

/** A register in workerd, as one in this process. */
function remote(kind: string, issuer: string, port: number): Register {
  async function ask(call: object, signal: AbortSignal | undefined): Promise<unknown> {
    const init = { method: "POST", body: JSON.stringify({ kind, issuer, ...call }), signal: signal ?? null };
    const response = await fetch(`http://127.0.0.1:${port}`, init);
    const answer = (await response.json()) as { value?: unknown; code?: "ERR_STORE_UNAVAILABLE"; message: string };
    if (answer.code !== undefined) throw new StoreError(answer.code, answer.message);
    if (!("value" in answer)) throw new Error(answer.message);
    return answer.value;
  }
  return {
    name: kind,
    maxBytes: 1_900_000,
    read: async (known, { confirmed, signal } = {}) => (await ask({ read: { known, confirmed } }, signal)) as Reading,
    write: async (text, ifVersion, { signal, due } = {}) =>
      (await ask({ write: { text, ifVersion, due } }, signal)) as boolean,
    // An object holds the keys of one issuer.
    ...(kind === "d1" && {
      due: async (limit, after, { signal } = {}) =>
        (await ask({ due: { limit, after } }, signal)) as readonly DueIssuer[],
    }),
  };
}

interface Under extends RegisterUnderTest {
  readonly network: Cuttable;
}
const dies = async ({ network }: Under): Promise<() => Promise<void>> => {
  network.cutAt("during", "after the server has answered", () => void end());
  return async () => {
    await end();
    end = await start();
  };
};
const loses = async (): Promise<() => Promise<void>> => {
  await fetch(`http://127.0.0.1:${controlPort}`, { method: "PUT" });
  return async () => {};
};

for (const kind of ["d1", "durable-object"] as const) {
  const open = async (): Promise<Under> => {
    const network = await cuttable(port);
    const run = randomUUID();
    return {
      network,
      handle: async (issuer: string) => remote(kind, `${issuer}#${run}`, network.port),
      end: () => network.close(),
    };
  };
  const faults = { "workerd dies": dies, ...(kind === "d1" && { "the answer of D1 is lost": loses }) };
  checkRegister(`${kind} in workerd`, open, faults);
}
