import { runCombined } from "./support/combined.ts";

await runCombined(4);
