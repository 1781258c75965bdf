// many-issuers.mts, for Node 22.18 or later: node many-issuers.mts
import { createServer } from "node:http";
import { createIssuers } from "jwksd/issuers";
import { postgresStore } from "jwksd/store/postgres";
import pg from "pg";

const { DATABASE_URL = "", JWKSD_WRAPPING_KEYS = "" } = process.env;
const pool = new pg.Pool({ connectionString: DATABASE_URL });
const issuers = await createIssuers({
  issuer: "https://login.example.com/*",
  store: (issuer) => postgresStore(pool, { issuer }),
  wrappingKeys: JWKSD_WRAPPING_KEYS,
  metadata: (issuer) => ({ token_endpoint: `${issuer}/token` }),
});

// When a tenant signs up:
await issuers.create("https://login.example.com/acme");

// In that tenant's token endpoint:
const claims = { sub: "alice", aud: "https://api.example.com", client_id: "app" };
const options = { typ: "at+jwt", lifetimeSeconds: 300 };
console.log(await issuers.sign("https://login.example.com/acme", claims, options));

// GET /acme/jwks and /acme/.well-known/openid-configuration, and the same for every other tenant:
createServer(issuers.node).listen(3000);

// Once an hour, in one process or several: runs due steps, even for tenants without traffic.
async function runAllDueSteps() {
  const { failed } = await issuers.runAllDueSteps();
  for (const [issuer, error] of failed) console.error(issuer, error);
}
setInterval(() => void runAllDueSteps().catch(console.error), 3_600_000);
