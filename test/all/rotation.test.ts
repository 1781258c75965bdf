import { loadTests } from "../support/together.ts";

await loadTests("explain", "issuers", "manager", "model", "rules", "saved-set", "upgrade");
