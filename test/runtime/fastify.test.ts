import { checkExample } from "../support/runtime.ts";

checkExample("Fastify", "examples/fastify.ts");
