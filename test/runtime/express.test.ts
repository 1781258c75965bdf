import { checkExample } from "../support/runtime.ts";

checkExample("Express", "examples/express.ts", { mounts: ["", "/tenant"] });
