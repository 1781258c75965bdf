import { createServer } from "node:http";
import { createClientAssertion, createProvider } from "jwksd";
import { createKeyManager } from "jwksd/rotation";
import { sqliteStore } from "jwksd/store/sqlite";
import * as openid from "openid-client"; // npm install openid-client

const { JWKSD_WRAPPING_KEYS = "" } = process.env;
export const manager = await createKeyManager({
  issuer: "https://client.example", // the issuer of these keys: the client's origin
  store: sqliteStore("./client-keys.db"), // its own store, never a provider's
  wrappingKeys: JWKSD_WRAPPING_KEYS,
  initialPolicy: { rotateEveryDays: 90, maxTokenLifetimeSeconds: 300 },
});
const keys = await createProvider({ keys: manager }, { discovery: false });

// A client ID metadata document: its URL is the client_id. If the client is registered instead, register the same members.
const clientId = "https://client.example/oauth-client.json";
const metadata = {
  client_id: clientId,
  client_name: "Example",
  redirect_uris: ["https://client.example/callback"],
  grant_types: ["authorization_code", "client_credentials"],
  token_endpoint_auth_method: "private_key_jwt",
  token_endpoint_auth_signing_alg: "ES256",
  jwks_uri: keys.jwksUri, // https://client.example/jwks
};
export const server = createServer((request, response) => {
  if (request.url !== "/oauth-client.json") keys.node(request, response);
  else response.setHeader("Content-Type", "application/json").end(JSON.stringify(metadata));
}).listen(3002);

const privateKeyJwt: openid.ClientAuth = async ({ issuer }, _client, body) => {
  body.set("client_id", clientId);
  body.set("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer");
  body.set("client_assertion", await createClientAssertion(keys, { clientId, audience: issuer }));
};

export async function accessToken(): Promise<string> {
  const config = await openid.discovery(new URL("https://as.example"), clientId, undefined, privateKeyJwt);
  const { access_token } = await openid.clientCredentialsGrant(config);
  return access_token;
}
