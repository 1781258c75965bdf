import { checkExample } from "../support/runtime.ts";

checkExample("Deno", "examples/deno.ts", { alone: true });
