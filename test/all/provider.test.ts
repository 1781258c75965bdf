import { loadTests } from "../support/together.ts";

await loadTests("adapters", "provider", "publish", "spec");
