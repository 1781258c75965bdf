import { runRoom } from "./support/combined.ts";

await runRoom("pkcs11");
