import { loadTests } from "../support/together.ts";

await loadTests("admin", "cli", "config", "targets", "listen", "node");
