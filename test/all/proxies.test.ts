import { loadTests } from "../support/together.ts";

await loadTests("proxies");
