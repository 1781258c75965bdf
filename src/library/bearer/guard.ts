import type { JWTHeaderParameters, JWTPayload } from "jose";
import { notify } from "../../base/async.ts";
import { publicKeyAlgorithms } from "../../keys/crypto/algorithms.ts";
import type { Reply } from "../http/respond.ts";
import { verifyAccessToken } from "./access-token.ts";
import { type GuardedRequest, type Credentials, credentialsOf } from "./authorization.ts";
import { createConfirmation } from "./confirmation.ts";
import { metadataUrl } from "./metadata.ts";
import { type ChallengeTerms, type Refusal, invalidToken, refusalOf, replyTo } from "./refusal.ts";
import { type Requirements, scopesOf, unmet } from "./requirements.ts";
import type { BearerSettings } from "./settings.ts";
import { type KeysOf, createTrustedIssuers } from "./trusted-issuers.ts";

/** An access token that holds, and what it says. It also has the members of `AuthInfo` of the MCP SDK. */
export interface Auth {
  /** The claims, all of which are signed. */
  readonly claims: JWTPayload & { readonly iss: string; readonly exp: number };
  /** The protected header. */
  readonly header: JWTHeaderParameters;
  /** The claim `scope`, or `scp`, as a list. */
  readonly scopes: string[];
  /** The claim `client_id`, or `azp`; empty where the token has neither. */
  readonly clientId: string;
  /** The claim `exp`: seconds since the epoch. */
  readonly expiresAt: number;
  /** The token itself. It is a secret. */
  readonly token: string;
}

/** The decision about a request: who sent it, or what to answer. */
export type AccessDecision = { readonly auth: Auth } | { readonly reply: Reply };

const schemesOf = { none: ["Bearer"], optional: ["Bearer", "DPoP"], required: ["DPoP"] } as const;

/** Decides about requests, for all faces. */
export function createGuard(settings: BearerSettings) {
  const { dpop, resource, onEvent, clock, verification } = settings;
  const keysOf = createTrustedIssuers(settings);
  const confirm = createConfirmation(settings);
  /** The tokens whose proofs were confirmed, by request. A route may have the guard twice, but a proof is valid once. */
  const confirmed = new WeakMap<object, string>();
  /** Who sent the requests that were let through. */
  const admitted = new WeakMap<object, Auth>();
  const terms: ChallengeTerms = {
    schemes: schemesOf[dpop ?? "none"],
    algorithms: publicKeyAlgorithms,
    resourceMetadata: resource && metadataUrl(resource),
    realm: [verification.audience].flat()[0] ?? "",
  };

  async function decide(request: GuardedRequest, requirements: Requirements): Promise<AccessDecision> {
    const credentials = credentialsOf(request.authorization, request.target, terms.schemes);
    const hasToken = "token" in credentials;
    const outcome = hasToken ? await admit(credentials, request, requirements).catch(refusalOf) : credentials;
    if ("claims" in outcome) {
      admitted.set(request.source, outcome);
      return { auth: outcome };
    }
    tell(outcome);
    return { reply: replyTo(outcome, hasToken ? credentials.scheme : undefined, terms, requirements.scope) };
  }

  async function admit(
    credentials: Credentials,
    request: GuardedRequest,
    requirements: Requirements,
  ): Promise<Auth | Refusal> {
    const { token } = credentials;
    const auth = await verify(token);
    if (confirmed.get(request.source) !== token) {
      const unconfirmed = await confirm(auth.claims, credentials, request);
      if (unconfirmed !== undefined) return unconfirmed;
      confirmed.set(request.source, token);
      if (hasExpired(auth)) return invalidToken("the token has expired");
    }
    return unmet(requirements, auth.claims, auth.scopes, settings) ?? auth;
  }

  /** A token may expire while a store or a function of the application confirms its sender. */
  const hasExpired = ({ expiresAt }: Auth): boolean =>
    expiresAt + verification.clockToleranceSeconds <= Math.floor(clock.now() / 1000);

  /** @throws TokenError, FetchError */
  const verify = (token: string): Promise<Auth> => authOfToken(token, keysOf, settings);

  function tell({ status, error, description, hint, code, cause }: Refusal): void {
    const reason = [description, hint].filter((text) => text !== undefined).join(": ");
    notify(onEvent, code === undefined ? { type: "refused", status, error, reason } : { type: "failed", code, cause });
  }

  return { decide, verify, authOf: (source: object): Auth | undefined => admitted.get(source) };
}

export type Guard = ReturnType<typeof createGuard>;

async function authOfToken(token: string, keysOf: KeysOf, settings: BearerSettings): Promise<Auth> {
  const { claims, header } = await verifyAccessToken(token, keysOf, settings);
  const clientId = claims["client_id"] ?? claims["azp"];
  return {
    claims: claims as Auth["claims"],
    header,
    scopes: scopesOf(claims),
    clientId: typeof clientId === "string" ? clientId : "",
    expiresAt: claims.exp as number,
    token,
  };
}
