// The entry of the one executable. It is its own child processes too: `fork` starts it with the path of a module, as it would start Node.
import { fileURLToPath } from "node:url";

/** The modules that run as processes of their own, by their names beside this one. */
const processes: Readonly<Record<string, () => Promise<unknown>>> = {
  "worker.js": () => import("./service/endpoint/worker.ts"),
  "child.js": () => import("./keys/pkcs11/child.ts"),
};

const [, runs] =
  Object.entries(processes).find(([name]) => process.argv[2] === fileURLToPath(new URL(name, import.meta.url))) ?? [];
await (runs === undefined ? import("./cli/command-line.ts") : runs());
