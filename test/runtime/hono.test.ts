import { checkExample } from "../support/runtime.ts";

checkExample("Hono", "examples/hono.ts", { alone: true });
