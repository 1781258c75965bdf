import { checkExample } from "../support/runtime.ts";

checkExample("workerd", "examples/workerd/worker.ts", { alone: true });
