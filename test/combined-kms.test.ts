import { runRoom } from "./support/combined.ts";

await runRoom("kms");
