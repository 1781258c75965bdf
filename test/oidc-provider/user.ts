import { decodeProtectedHeader } from "jose";
import * as openid from "openid-client";

const redirectUri = "https://app.example/callback";
const client = {
  client_secret: "secret",
  id_token_signed_response_alg: "ES256",
  userinfo_signed_response_alg: "ES256",
  introspection_signed_response_alg: "ES256",
};

/** Follows redirects and fills in forms, as a browser and its user do, until it comes to the client. */
async function browse(from: URL, name: string, cookies: Map<string, string>): Promise<URL> {
  let [url, form] = [from, undefined as URLSearchParams | undefined];
  for (let step = 0; step < 10; step += 1) {
    const response = await fetch(url, {
      redirect: "manual",
      headers: { Cookie: Array.from(cookies, (cookie) => cookie.join("=")).join("; ") },
      ...(form && { method: "POST", body: form }),
    });
    const text = await response.text();
    for (const line of response.headers.getSetCookie()) {
      const [, key = "", value = ""] = /^([^=]+)=([^;]*)/.exec(line) ?? [];
      if (value === "") cookies.delete(key);
      else cookies.set(key, value);
    }
    const location = response.headers.get("location");
    const [, prompt] = /name="prompt" value="(\w+)"/.exec(text) ?? [];
    if (location !== null) [url, form] = [new URL(location, url), undefined];
    else if (prompt !== undefined) form = new URLSearchParams({ prompt, login: name });
    else throw new Error(`${response.status} at ${url.pathname}: ${text.slice(0, 200)}`);
    if (url.href.startsWith(redirectUri)) return url;
  }
  throw new Error("redirects without end");
}

/** An ID token that was accepted. */
export interface IdToken {
  readonly text: string;
  readonly kid: string;
  readonly exp: number;
}

/** What users have done. */
export interface Tally {
  readonly done: Record<"logins" | "silent logins" | "user infos" | "introspections", number>;
  readonly tokens: IdToken[];
}

/** A user of a client that keeps its configuration, and the keys of the provider, for as long as it runs. */
export class User {
  readonly #name: string;
  readonly #config: openid.Configuration;
  readonly #tally: Tally;
  /** The ID token of the first login, for a hint; it stays one for as long as the client knows the user. */
  hint: IdToken | undefined;

  static async of(issuer: string, name: string, tally: Tally): Promise<User> {
    const execute = [openid.allowInsecureRequests, openid.enableNonRepudiationChecks];
    return new User(await openid.discovery(new URL(issuer), "app", client, undefined, { execute }), name, tally);
  }

  private constructor(config: openid.Configuration, name: string, tally: Tally) {
    this.#config = config;
    this.#name = name;
    this.#tally = tally;
  }

  /** Logs in, asks for what a client asks for, and logs in again without a form. */
  async visit(): Promise<void> {
    const { done } = this.#tally;
    const cookies = new Map<string, string>();
    const { access_token: accessToken } = await this.#login(cookies);
    done.logins += 1;
    const { email } = await openid.fetchUserInfo(this.#config, accessToken, this.#name);
    if (email !== `${this.#name}@example.com`) throw new Error(`the user info is that of ${email}`);
    done["user infos"] += 1;
    const { active } = await openid.tokenIntrospection(this.#config, accessToken);
    if (!active) throw new Error("the access token is not active");
    done.introspections += 1;
    await this.#login(cookies, { prompt: "none", ...(this.hint && { id_token_hint: this.hint.text }) });
    done["silent logins"] += 1;
  }

  async #login(cookies: Map<string, string>, more: Readonly<Record<string, string>> = {}) {
    const pkceCodeVerifier = openid.randomPKCECodeVerifier();
    const [expectedState, expectedNonce] = [openid.randomState(), openid.randomNonce()];
    const url = openid.buildAuthorizationUrl(this.#config, {
      redirect_uri: redirectUri,
      scope: "openid email",
      state: expectedState,
      nonce: expectedNonce,
      code_challenge: await openid.calculatePKCECodeChallenge(pkceCodeVerifier),
      code_challenge_method: "S256",
      ...more,
    });
    const checks = { pkceCodeVerifier, expectedState, expectedNonce, idTokenExpected: true };
    const tokens = await openid.authorizationCodeGrant(this.#config, await browse(url, this.#name, cookies), checks);
    const { id_token: text = "" } = tokens;
    const token = { text, kid: decodeProtectedHeader(text).kid ?? "", exp: tokens.claims()?.exp ?? 0 };
    this.#tally.tokens.push(token);
    this.hint ??= token;
    return tokens;
  }
}
