import { loadTests } from "../support/together.ts";

await loadTests("admin", "cli", "config", "guard", "targets", "listen", "node");
