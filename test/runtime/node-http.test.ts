import { checkExample } from "../support/runtime.ts";

checkExample("node:http", "examples/node-http.ts", { alone: true });
