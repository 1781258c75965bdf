import { loadTests } from "../support/together.ts";

await loadTests("crypto", "jwk", "keys", "kms", "signer");
