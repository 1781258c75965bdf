// The entry of the one executable. It is also the process that loads a PKCS#11 module: `fork` starts it with the path of `child.js`, as it would start Node.
import { fileURLToPath } from "node:url";

const isChild = process.argv[2] === fileURLToPath(new URL("child.js", import.meta.url));
await (isChild ? import("./keys/pkcs11/child.ts") : import("./cli/command-line.ts"));
