import { type ClientDocumentsOptions, type ClientVerifierOptions, createClientDocuments } from "../../src/index.ts";
import { ecKey } from "../support/keys.ts";
import { type Script, reply, scriptedOrigin, simulatedClock } from "../support/simulated.ts";
import { compact, signature } from "../token/compact.ts";
import { issuer, verifier } from "./client.ts";

export const documentUrl = "https://client.example/client.json";

/** Members of a valid document of a public client. */
export const publicDocument = {
  client_id: documentUrl,
  client_name: "Example",
  redirect_uris: ["https://client.example/callback"],
  token_endpoint_auth_method: "none",
};

/** Members of a valid document of a client that hosts its keys. */
export const confidentialDocument = {
  ...publicDocument,
  token_endpoint_auth_method: "private_key_jwt",
  jwks_uri: "https://client.example/jwks",
};

let jtis = 0;

/** Returns a client assertion of a client at this time, signed with the key of a kid. */
export function assertionAt(nowMs: number, kid: string, claims: object = {}, clientId = documentUrl): string {
  const all = { iss: clientId, sub: clientId, aud: issuer, exp: nowMs / 1000 + 60, jti: `d${(jtis += 1)}`, ...claims };
  return compact({ alg: "ES256", kid }, all, signature("ES256", ecKey(kid)));
}

/** Responds with a document as JSON. */
export const documentReply = (document: unknown, headers: Readonly<Record<string, string>> = {}): Script =>
  reply(200, typeof document === "string" ? document : JSON.stringify(document), {
    "Content-Type": "application/json",
    ...headers,
  });

/** Returns documents and a verifier in simulated time, and the origin of all hosts. */
export function documented(
  script: Script,
  options: Partial<ClientDocumentsOptions> = {},
  verifierOptions: Partial<ClientVerifierOptions> = {},
) {
  const clock = simulatedClock();
  const origin = scriptedOrigin(clock, script);
  const documents = createClientDocuments({
    issuer,
    clock,
    fetch: origin.fetch,
    allow: () => true,
    publicClients: true,
    ...options,
  });
  const clients = verifier({ clock, documents, ...verifierOptions });
  return { clock, origin, documents, resolve: documents.resolve, clients };
}
