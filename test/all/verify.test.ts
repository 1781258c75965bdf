import { loadTests } from "../support/together.ts";

await loadTests("client", "relying-party", "token");
