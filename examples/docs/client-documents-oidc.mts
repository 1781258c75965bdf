// client-documents-oidc.mts: the same clients for oidc-provider, which authenticates them itself
import { ClientDocumentError, createClientDocuments } from "jwksd";
import { guardedFetch } from "jwksd/node";
import { Provider } from "oidc-provider";
import { sqliteAdapter } from "./oidc-adapter.mts";

const issuer = "https://login.example.com";
const allow = ["chatgpt.com", "claude.ai", "vscode.dev", "www.mcpjam.com"];
const documents = createClientDocuments({ issuer, fetch: guardedFetch, allow, publicClients: true });
const clients: { client_id: string }[] = []; // registered clients, which take precedence
const stored = sqliteAdapter("./sessions.db");

/** Returns a client as oidc-provider stores it, without the grant types and schemes that it does not know. */
async function find(id: string) {
  try {
    const { metadata, method, redirectUris, fingerprint } = await documents.resolve(id);
    return {
      ...metadata,
      redirect_uris: redirectUris.filter((uri) => /^https?:/.test(uri)),
      application_type: redirectUris.some((uri) => uri.startsWith("http:")) ? "native" : "web",
      grant_types: ["authorization_code", "refresh_token"],
      token_endpoint_auth_method: method,
      fingerprint,
      sector_identifier_uri: undefined, // oidc-provider would fetch it, whatever `allow` says
    };
  } catch (error) {
    if (error instanceof ClientDocumentError) return undefined;
    throw error;
  }
}

type Payload = Record<string, unknown>;
const registered = "registered";

/** Returns the fingerprint of the client that an authorization request or a grant belongs to. */
async function fingerprintOf({ clientId, params }: Payload) {
  const id = String(clientId ?? (params as Payload)["client_id"]);
  const client = Provider.ctx?.oidc?.client; // has authenticated: its document, not a newer one, must match
  if (client?.clientId === id) return client.fingerprint ?? registered;
  const isRegistered = clients.some(({ client_id }) => client_id === id) || (await stored("Client").find(id));
  return isRegistered ? registered : (await find(id))?.fingerprint;
}

/** An authorization request or a grant ends when its client's document changes, so the method cannot change. */
function adapter(model: string) {
  const own = stored(model);
  if (model === "Client") return { ...own, find: async (id: string) => (await own.find(id)) ?? (await find(id)) };
  if (model !== "Grant" && model !== "Interaction") return own;
  return {
    ...own,
    async upsert(id: string, payload: Payload, expiresIn: number) {
      if (model === "Grant") documents.prove(String(payload["clientId"])); // a user has consented
      await own.upsert(id, { ...payload, fingerprint: await fingerprintOf(payload) }, expiresIn);
    },
    async find(id: string) {
      const found = await own.find(id);
      return found && (found["fingerprint"] ?? registered) === (await fingerprintOf(found)) ? found : undefined;
    },
  };
}

export const configuration = {
  adapter,
  clients,
  fetch: guardedFetch, // for the clients' keys
  clientAuthMethods: ["private_key_jwt" as const, "none" as const],
  extraClientMetadata: { properties: ["fingerprint"] },
  discovery: { client_id_metadata_document_supported: true },
};
