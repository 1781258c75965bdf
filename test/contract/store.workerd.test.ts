import { randomUUID } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after } from "node:test";
import { fileURLToPath } from "node:url";
import { StoreError } from "../../src/base/errors.ts";
import type { DueIssuer, ListedIssuer, ReadResult, Register } from "../../src/rotation/store/register.ts";
import { type RegisterUnderTest, defineRegisterTests } from "../../src/testing/register-tests.ts";
import { bundledText } from "../support/bundle.ts";
import { type Cuttable, cuttable } from "../support/cuttable.ts";
import { startDaemon } from "../support/daemon.ts";
import { sample } from "../support/samples.ts";
import { freePort, temporaryFolder } from "../support/service.ts";
import { d1Binding, d1Worker, objectBinding, workerdCommand } from "../support/workerd.ts";

const here = (file: string): string => fileURLToPath(new URL(file, import.meta.url));
const folder = await temporaryFolder({ after });
const d1Sample = await sample({ after }, "examples/docs/store-d1.mts");
const durableObject = await sample({ after }, "examples/docs/store-durable-object.mts");
const entry = join(folder, "entry.ts");
await writeFile(
  entry,
  `import { storeOf as d1 } from "${d1Sample}";
import { storeOf as durableObject } from "${durableObject}";
import { worker } from "${here("store-worker.ts")}";
export { KeysObject } from "${durableObject}";
export default worker({ d1, "durable-object": durableObject });`,
);
const [port, controlPort] = [await freePort(), await freePort()];
const bindings = [objectBinding("KEYS", "KeysObject"), d1Binding("DB", "d1")];
const registers = { script: await bundledText(entry), bindings, objects: "KeysObject" };
const d1 = await d1Worker(here("store-d1.ts"));
const command = await workerdCommand(folder, { registers, d1 }, { registers: port, d1: controlPort });
const workerd = await startDaemon(command, port);
after(() => workerd.kill());

/** Creates a register that calls one in workerd. */
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
    read: async (known, { confirmed, signal } = {}) =>
      (await ask({ read: { known, confirmed } }, signal)) as ReadResult,
    write: async (text, ifVersion, { signal, due } = {}) =>
      (await ask({ write: { text, ifVersion, due } }, signal)) as boolean,
    // An object stores the keys of one issuer.
    ...(kind === "d1" && {
      due: async (limit, after, { signal } = {}) =>
        (await ask({ due: { limit, after } }, signal)) as readonly DueIssuer[],
      list: async (limit, after, { signal } = {}) =>
        (await ask({ list: { limit, after } }, signal)) as readonly ListedIssuer[],
    }),
  };
}

interface Under extends RegisterUnderTest {
  readonly network: Cuttable;
}
const killWorkerd = async ({ network }: Under): Promise<() => Promise<void>> => {
  network.cutAt("during", "after the server has responded", () => void workerd.kill());
  return async () => {
    await workerd.kill();
    await workerd.start();
  };
};
const loseResponse = async (): Promise<() => Promise<void>> => {
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
  const faults = { "workerd dies": killWorkerd, ...(kind === "d1" && { "D1's response is lost": loseResponse }) };
  defineRegisterTests(`${kind} in workerd`, open, faults);
}
