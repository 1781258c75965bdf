import { createHash, randomBytes } from "node:crypto";
import { oauthProviderClient } from "@better-auth/oauth-provider/client";
import { createAuthClient } from "better-auth/client";
import { jwtClient } from "better-auth/client/plugins";
import { decodeProtectedHeader } from "jose";
import { api, client } from "./auth.ts";

/** A request was under way at a process that was killed. */
export class Interrupted extends Error {}

/** An access token of the provider that the provider itself refuses. */
export class Refused extends Error {
  readonly kid: string | undefined;

  constructor(accessToken: string, cause: unknown) {
    super(String(cause), { cause });
    ({ kid: this.kid } = decodeProtectedHeader(accessToken));
  }
}

/** A token, and who it is for. */
export interface Issued {
  readonly kind: "token" | "ID token" | "access token";
  readonly token: string;
  readonly audience: string;
}

interface TokenResponse {
  readonly id_token: string;
  readonly access_token: string;
  readonly refresh_token: string;
}

/**
 * Somebody who signs in and is let into a client by a code flow with PKCE, again and again: each call is a login, and throws when any part of it
 * fails. User info and introspection are asked with each access token, before and after a refresh.
 */
export function createUser(base: string, name: string): () => Promise<Issued[]> {
  const cookies = new Map<string, string>();
  /** `fetch` with the cookies of a browser. */
  const browse = async (url: string | URL | Request, init: RequestInit = {}): Promise<Response> => {
    const headers = new Headers(init.headers);
    headers.set("cookie", Array.from(cookies, (cookie) => cookie.join("=")).join("; "));
    headers.set("origin", new URL(base).origin);
    const response = await fetch(url, { ...init, headers, redirect: "manual" });
    if (response.status === 502) throw new Interrupted();
    for (const line of response.headers.getSetCookie()) {
      const [, key = "", value = ""] = /^([^=]+)=([^;]*)/.exec(line) ?? [];
      cookies.set(key, value);
    }
    return response;
  };
  const authClient = createAuthClient({
    baseURL: base,
    plugins: [jwtClient(), oauthProviderClient()],
    fetchOptions: { customFetchImpl: browse, throw: true, retry: 0 },
  });
  const credentials = { email: `${name}@client.example`, password: `password of ${name}` };
  const post = async (path: string, body: Record<string, string>): Promise<unknown> => {
    const { client_id, client_secret } = client;
    const response = await browse(`${base}${path}`, {
      method: "POST",
      body: new URLSearchParams({ client_id, client_secret, ...body }),
    });
    return expectOk(path, response);
  };

  async function code(verifier: string): Promise<string> {
    const query = new URLSearchParams({
      response_type: "code",
      client_id: client.client_id,
      redirect_uri: client.redirect_uri,
      scope: "openid email offline_access",
      state: "state",
      code_challenge: createHash("sha256").update(verifier).digest("base64url"),
      code_challenge_method: "S256",
    });
    const response = await browse(`${base}/oauth2/authorize?${query.toString()}`);
    // No navigation of a browser, so where to go is in the body.
    const { url } = (await expectOk("authorize", response)) as { url?: string };
    const found = new URL(url ?? "", base).searchParams.get("code");
    if (found === null) throw new Error(`authorize: ${url}`);
    return found;
  }

  /** Asks for user info, and introspects. */
  async function use({ access_token }: TokenResponse): Promise<void> {
    const headers = { Authorization: `Bearer ${access_token}` };
    try {
      await expectOk("userinfo", await browse(`${base}/oauth2/userinfo`, { headers }));
      const { active } = (await post("/oauth2/introspect", { token: access_token })) as { active?: boolean };
      if (active !== true) throw new Error("introspect: not active");
    } catch (error) {
      throw error instanceof Interrupted ? error : new Refused(access_token, error);
    }
  }

  let isKnown = false;
  return async () => {
    if (!isKnown) await authClient.signUp.email({ name, ...credentials });
    isKnown = true;
    await authClient.signIn.email(credentials);
    const { token } = await authClient.token();
    const verifier = randomBytes(32).toString("base64url");
    const first = (await post("/oauth2/token", {
      grant_type: "authorization_code",
      code: await code(verifier),
      code_verifier: verifier,
      redirect_uri: client.redirect_uri,
      resource: api,
    })) as TokenResponse;
    await use(first);
    const { refresh_token } = first;
    const second = (await post("/oauth2/token", {
      grant_type: "refresh_token",
      refresh_token,
      resource: api,
    })) as TokenResponse;
    await use(second);
    return [
      { kind: "token", token, audience: api },
      ...[first, second].flatMap(({ id_token, access_token }): Issued[] => [
        { kind: "ID token", token: id_token, audience: client.client_id },
        { kind: "access token", token: access_token, audience: api },
      ]),
    ];
  };
}

async function expectOk(what: string, response: Response): Promise<unknown> {
  const text = await response.text();
  if (response.status !== 200) throw new Error(`${what}: ${response.status} ${text.slice(0, 200)}`);
  return JSON.parse(text);
}
