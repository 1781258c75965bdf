import { checkExample } from "../support/runtime.ts";

checkExample("Bun", "examples/bun.ts", { alone: true });
