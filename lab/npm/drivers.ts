import { readFileSync } from "node:fs";
import type { DecodedJwt } from "fast-jwt";

/** Configuration of a relying party. */
export interface Configured {
  readonly issuer: string;
  readonly jwksUri: string;
  /** Accepted `iss`. */
  readonly iss: string;
  /** URL of the issuer, as the verifier knows it. Default: `issuer`, which is on loopback. */
  readonly known?: string;
}

/** Rejects if the verifier does not accept the token. */
export type Verify = (token: string) => Promise<unknown>;

/** An npm verifier, set up as its documentation shows. */
export interface Driver {
  readonly name: string;
  /** Measured packages, beginning with the one that fetches the keys. */
  readonly packages: readonly string[];
  /** Whether the verifier finds the keys through discovery. */
  readonly discovers?: true;
  /** `typ` header of the tokens that the verifier accepts. Default: `JWT`. */
  readonly typ?: string;
  /** Creates a verifier with an empty cache. */
  readonly make: (configured: Configured) => Promise<Verify>;
}

export const audience = "relying-party";
export const nonce = "nonce";

/** Returns the installed versions of packages. */
export const versionOf = (packages: readonly string[]): string =>
  packages
    .map((name) => {
      const file = new URL(`../../node_modules/${name}/package.json`, import.meta.url);
      return (JSON.parse(readFileSync(file, "utf8")) as { version: string }).version;
    })
    .join(" + ");

const is = (): boolean => false;

/** Sends a token through Express middleware, in a request without a body. */
const through =
  (middleware: (request: never, response: never, next: (error?: unknown) => void) => unknown): Verify =>
  (token) =>
    new Promise((resolve, reject) => {
      const headers: Readonly<Record<string, string>> = { host: "api.example", authorization: `Bearer ${token}` };
      const get = (name: string): string | undefined => headers[name.toLowerCase()];
      const request = { method: "GET", url: "/", originalUrl: "/", protocol: "https", headers, query: {}, get, is };
      const end = (): void => reject(new Error("refused"));
      const response = { setHeader: () => {}, end };
      Promise.resolve(
        middleware(request as never, response as never, (error) =>
          error === undefined ? resolve(undefined) : reject(error),
        ),
      ).catch(reject);
    });

export const drivers: readonly Driver[] = [
  {
    name: "jose",
    packages: ["jose"],
    make: async ({ jwksUri, iss }) => {
      const { createRemoteJWKSet, jwtVerify } = await import("jose");
      const keys = createRemoteJWKSet(new URL(jwksUri));
      return (token) => jwtVerify(token, keys, { issuer: iss, audience });
    },
  },
  {
    name: "jwks-rsa + jsonwebtoken",
    packages: ["jwks-rsa", "jsonwebtoken"],
    make: async ({ jwksUri, iss }) => {
      const { default: jsonwebtoken } = await import("jsonwebtoken");
      const { default: jwksClient } = await import("jwks-rsa");
      const client = jwksClient({ jwksUri });
      return async (token) => {
        const { header } = jsonwebtoken.decode(token, { complete: true }) ?? {};
        const key = await client.getSigningKey(header?.kid);
        return jsonwebtoken.verify(token, key.getPublicKey(), { issuer: iss, audience });
      };
    },
  },
  {
    name: "get-jwks + fast-jwt",
    packages: ["get-jwks", "fast-jwt"],
    discovers: true,
    make: async ({ issuer, iss }) => {
      const { createVerifier } = await import("fast-jwt");
      const { default: buildGetJwks } = await import("get-jwks");
      const keys = buildGetJwks({ providerDiscovery: true });
      return createVerifier({
        key: async ({ header }: DecodedJwt) => {
          const { kid, alg } = header as { kid: string; alg: string };
          return keys.getPublicKey({ kid, alg, domain: issuer });
        },
        allowedIss: iss,
        allowedAud: audience,
      }) as Verify;
    },
  },
  {
    name: "aws-jwt-verify",
    packages: ["aws-jwt-verify"],
    make: async ({ jwksUri, iss }) => {
      const { JwtVerifier } = await import("aws-jwt-verify");
      const verifier = JwtVerifier.create({ issuer: iss, audience, jwksUri });
      return (token) => verifier.verify(token);
    },
  },
  {
    name: "openid-client",
    packages: ["openid-client"],
    discovers: true,
    make: async ({ issuer, known = issuer }) => {
      const openid = await import("openid-client");
      const relyingParty = await openid.discovery(new URL(known), audience, undefined, openid.None(), {
        // The issuer that it knows by another name is served here.
        [openid.customFetch]: (url, init) => fetch(url.replace(known, issuer), init as RequestInit),
      });
      openid.useIdTokenResponseType(relyingParty);
      return (token) => {
        const callback = new URL(`https://relying-party.example/callback#id_token=${token}`);
        return openid.implicitAuthentication(relyingParty, callback, nonce);
      };
    },
  },
  {
    name: "oauth4webapi",
    packages: ["oauth4webapi"],
    discovers: true,
    typ: "at+jwt",
    make: async ({ issuer }) => {
      const oauth = await import("oauth4webapi");
      const url = new URL(issuer);
      const server = await oauth.processDiscoveryResponse(url, await oauth.discoveryRequest(url));
      return (token) => {
        const request = new Request("https://api.example/", { headers: { authorization: `Bearer ${token}` } });
        return oauth.validateJwtAccessToken(server, request, audience);
      };
    },
  },
  {
    name: "jwks-rsa + express-jwt",
    packages: ["jwks-rsa", "express-jwt"],
    make: async ({ jwksUri, iss }) => {
      const { expressjwt } = await import("express-jwt");
      const { default: jwksRsa } = await import("jwks-rsa");
      const options = { cache: true, rateLimit: true, jwksRequestsPerMinute: 5, jwksUri };
      const secret = jwksRsa.expressJwtSecret(options) as never;
      return through(expressjwt({ secret, audience, issuer: iss, algorithms: ["ES256"] }));
    },
  },
  {
    name: "jwks-rsa + passport-jwt",
    packages: ["jwks-rsa", "passport-jwt"],
    make: async ({ jwksUri, iss }) => {
      const { default: passport } = await import("passport");
      const { ExtractJwt, Strategy } = await import("passport-jwt");
      const { default: jwksRsa } = await import("jwks-rsa");
      const options = { cache: true, rateLimit: true, jwksRequestsPerMinute: 5, jwksUri };
      const strategy = new Strategy(
        {
          secretOrKeyProvider: jwksRsa.passportJwtSecret(options),
          jwtFromRequest: ExtractJwt.fromAuthHeaderAsBearerToken(),
          audience,
          issuer: iss,
          algorithms: ["ES256"],
        },
        (claims: object, done: (error: null, user: object) => void) => done(null, claims),
      );
      return through(passport.use(strategy).authenticate("jwt", { session: false }) as never);
    },
  },
  {
    name: "express-oauth2-jwt-bearer",
    packages: ["express-oauth2-jwt-bearer"],
    discovers: true,
    make: async ({ issuer }) => {
      const { auth } = await import("express-oauth2-jwt-bearer");
      return through(auth({ issuerBaseURL: issuer, audience }) as never);
    },
  },
  {
    name: "hono/jwk",
    packages: ["hono"],
    typ: "at+jwt",
    make: async ({ jwksUri, iss }) => {
      const { Hono } = await import("hono");
      const { HTTPException } = await import("hono/http-exception");
      const { jwk } = await import("hono/jwk");
      const app = new Hono()
        .onError((error, context) =>
          error instanceof HTTPException ? error.getResponse() : context.text("error", 500),
        )
        .use(jwk({ jwks_uri: jwksUri, alg: ["ES256"], verification: { iss, aud: audience, typ: "at+jwt" } }))
        .get("/", (context) => context.text("in"));
      return async (token) => {
        const response = await app.request("/", { headers: { authorization: `Bearer ${token}` } });
        if (!response.ok) throw new Error(`${response.status}`);
      };
    },
  },
  {
    name: "jwksd guard",
    packages: [],
    discovers: true,
    typ: "at+jwt",
    make: async ({ issuer }) => {
      const { createBearerGuard } = await import("../../src/verify/bearer/index.ts");
      const bearer = createBearerGuard({ issuer, audience });
      return async (token) => {
        const headers = { authorization: `Bearer ${token}` };
        const auth = await bearer.check(new Request("https://api.example/", { headers }));
        if (auth instanceof Response) throw new Error(`${auth.status}`);
      };
    },
  },
  {
    name: "jwksd key set",
    packages: [],
    make: async ({ jwksUri, iss }) => {
      const { jwtVerify } = await import("jose");
      const { createRemoteKeySet } = await import("../../src/verify/relying-party/index.ts");
      const keys = createRemoteKeySet({ jwksUri });
      return (token) => jwtVerify(token, keys, { issuer: iss, audience });
    },
  },
];
