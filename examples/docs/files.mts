// files.mts: node files.mts, then curl -i http://localhost:3001/jwks
import { createServer } from "node:http";
import { createProvider } from "jwksd";
import { readKeyset } from "jwksd/node";

const { entries } = await readKeyset("./keys"); // or [{ kid: "2026-11", signer: await localSigner(pem) }]
const provider = await createProvider({ issuer: "https://login.example.com", keyset: entries });

createServer(provider.node).listen(3001);

async function reload() {
  const next = await readKeyset("./keys");
  await provider.update({ keyset: next.entries });
}
process.on("SIGHUP", () => reload().catch(console.error)); // kill -HUP PID
