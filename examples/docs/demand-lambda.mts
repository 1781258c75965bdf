import { createProvider } from "jwksd";
import { createKeyManager } from "jwksd/rotation";
import { libsqlStore } from "jwksd/store/libsql";

const { DATABASE_URL = "", JWKSD_WRAPPING_KEYS = "" } = process.env;
const issuer = "https://login.example.com";
const store = libsqlStore(DATABASE_URL, { issuer });
const keys = await createKeyManager({
  issuer,
  store,
  wrappingKeys: JWKSD_WRAPPING_KEYS,
  onDemand: true,
  onEvent: (event) => "error" in event && console.error(event.type, event.error.message),
});
const provider = await createProvider({ keys });

/** An event from a function URL or an HTTP API. */
interface Event {
  readonly rawPath: string;
  readonly headers: Readonly<Record<string, string>>;
}

export async function handler({ rawPath, headers }: Event) {
  if (rawPath === "/token") {
    const claims = { sub: "alice", aud: "https://api.example.com", client_id: "app" };
    return { statusCode: 200, body: await provider.sign(claims, { typ: "at+jwt", lifetimeSeconds: 300 }) };
  }
  const response = await provider.fetch(new Request(issuer + rawPath, { headers }));
  return {
    statusCode: response.status,
    headers: Object.fromEntries(response.headers),
    body: await response.text(),
  };
}
