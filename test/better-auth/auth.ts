import { createHash } from "node:crypto";
import { oauthProvider } from "@better-auth/oauth-provider";
import { betterAuth } from "better-auth";
import { getMigrations } from "better-auth/db/migration";
import { jwt } from "better-auth/plugins";
import pg from "pg";

export type JwtPluginOptions = NonNullable<Parameters<typeof jwt>[0]>;

export const api = "https://api.example.com";
export const client = {
  client_id: "client",
  client_secret: "secret-of-the-client",
  redirect_uri: "https://client.example/callback",
} as const;

interface Options {
  readonly origin: string;
  readonly basePath: string;
  /** Of its database. */
  readonly url: string;
  readonly jwt: JwtPluginOptions;
}

const hash = (password: string): string => createHash("sha256").update(password).digest("hex");

/** A better-auth with one client, whose users sign in with any password that they have chosen. */
export function authOf({ origin, basePath, url, jwt: options }: Options) {
  const database = new pg.Pool({ connectionString: url, max: 5 });
  const auth = betterAuth({
    baseURL: origin,
    basePath,
    secret: hash("secret"),
    database,
    logger: { disabled: true },
    rateLimit: { enabled: false },
    // What is slow here is not what is tested.
    emailAndPassword: {
      enabled: true,
      password: { hash: async (password) => hash(password), verify: async (one) => one.hash === hash(one.password) },
    },
    plugins: [
      jwt({ ...options, jwt: { ...options.jwt, audience: api, expirationTime: "1h" }, disableSettingJwtHeader: true }),
      oauthProvider({
        loginPage: "/login",
        consentPage: "/consent",
        silenceWarnings: { oauthAuthServerConfig: true, openidConfig: true },
        idTokenExpiresIn: 3600,
        accessTokenExpiresIn: 3600,
        // Longer than a step of the simulated time.
        codeExpiresIn: 7200,
        resources: [api],
        enforcePerClientResources: false,
        generateClientId: () => client.client_id,
        generateClientSecret: () => client.client_secret,
      }),
    ],
  });
  return { auth, close: () => database.end() };
}

/** Makes the tables, and the client. */
export async function setUp(options: Options): Promise<void> {
  const { auth, close } = authOf(options);
  await (await getMigrations(auth.options)).runMigrations();
  const { headers } = await auth.api.signUpEmail({
    body: { name: "admin", email: "admin@client.example", password: "password of the admin" },
    returnHeaders: true,
  });
  await auth.api.adminCreateOAuthClient({
    headers: { cookie: headers.getSetCookie().join("; ") },
    body: {
      redirect_uris: [client.redirect_uri],
      token_endpoint_auth_method: "client_secret_post",
      grant_types: ["authorization_code", "refresh_token"],
      scope: "openid profile email offline_access",
      skip_consent: true,
      enable_end_session: true,
    },
  });
  await close();
}
