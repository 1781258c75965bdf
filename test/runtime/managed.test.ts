import { checkExample } from "../support/runtime.ts";

checkExample("a managed keyset", "examples/managed.ts", { alone: true });
