// better-auth-keys.mts: node better-auth-keys.mts > jwks.json
import { DatabaseSync } from "node:sqlite";
import { betterAuth } from "better-auth";
import { symmetricDecrypt } from "better-auth/crypto";
import { createJwk, jwt } from "better-auth/plugins";

const { BETTER_AUTH_SECRET = "" } = process.env;
// Use your own database, secret and jwt() options.
const auth = betterAuth({ secret: BETTER_AUTH_SECRET, database: new DatabaseSync("./auth.db"), plugins: [jwt()] });

interface Row {
  readonly id: string;
  readonly alg?: string;
  readonly privateKey: string;
}
const context = await auth.$context;
const find = () => context.adapter.findMany<Row>({ model: "jwks", sortBy: { field: "createdAt", direction: "desc" } });
const isEs256 = ({ alg }: Row) => alg === "ES256";

if (!(await find()).some(isEs256)) {
  const options = { jwks: { keyPairConfig: { alg: "ES256" } } } as const;
  await createJwk({ context } as Parameters<typeof createJwk>[0], options);
  console.error("generated an ES256 key, which is now published but does not sign yet");
}
const keys: object[] = [];
for (const { id, privateKey } of (await find()).filter(isEs256)) {
  const text = await symmetricDecrypt({ key: context.secretConfig, data: JSON.parse(privateKey) });
  keys.push({ ...JSON.parse(text), kid: id });
}
console.log(JSON.stringify({ keys }));
