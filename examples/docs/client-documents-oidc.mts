// client-documents-oidc.mts: the same clients for oidc-provider, which authenticates them itself
import { ClientError, createClientDocuments } from "jwksd";
import { guardedFetch } from "jwksd/node";
import { sqliteAdapter } from "./oidc-adapter.mts";

const issuer = "https://login.example.com";
const allow = ["chatgpt.com", "claude.ai", "vscode.dev", "www.mcpjam.com"];
const documents = createClientDocuments({ issuer, fetch: guardedFetch, allow, publicClients: true });

/** Returns a client as oidc-provider stores it, without the grant types and schemes that it does not know. */
async function find(id: string) {
  try {
    const { metadata, method, redirectUris } = await documents.resolve(id);
    return {
      ...metadata,
      redirect_uris: redirectUris.filter((uri) => /^https?:/.test(uri)),
      application_type: redirectUris.some((uri) => uri.startsWith("http:")) ? "native" : "web",
      grant_types: ["authorization_code", "refresh_token"],
      token_endpoint_auth_method: method,
    };
  } catch (error) {
    if (error instanceof ClientError) return undefined;
    throw error;
  }
}

const stored = sqliteAdapter("./sessions.db");

/** Registered clients take precedence. A grant is a completed consent. */
function adapter(model: string) {
  const own = stored(model);
  if (model === "Client") return { ...own, find: async (id: string) => (await own.find(id)) ?? (await find(id)) };
  if (model !== "Grant") return own;
  return {
    ...own,
    async upsert(id: string, payload: Record<string, unknown>, expiresIn: number) {
      documents.prove(String(payload["clientId"]));
      await own.upsert(id, payload, expiresIn);
    },
  };
}

export const configuration = {
  adapter,
  fetch: guardedFetch, // for the clients' keys
  clientAuthMethods: ["private_key_jwt" as const, "none" as const],
  discovery: { client_id_metadata_document_supported: true },
};
