import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after } from "node:test";
import { checkExample } from "../support/runtime.ts";
import { temporaryFolder } from "../support/service.ts";
import { vaultStub } from "../support/stubs/vault-transit.ts";

const vault = await vaultStub("a-token");
after(() => vault.close());
const signers = join(await temporaryFolder({ after }), "signers.json");
await writeFile(signers, JSON.stringify({ vaultTransit: { mount: `${vault.url}/transit` } }));
Object.assign(process.env, { SIGNER_TYPE: "vault-transit", SIGNERS: signers, VAULT_TOKEN: "a-token" });

checkExample("a managed keyset in a key service", "examples/managed-hsm.ts", { alone: true });
