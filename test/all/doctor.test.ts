import { loadTests } from "../support/together.ts";

await loadTests("doctor", "lab", "testing");
