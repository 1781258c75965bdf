import type { JWTHeaderParameters, JWTPayload } from "jose";
import { notify } from "../../base/async.ts";
import { publicKeyAlgorithms } from "../../keys/crypto/algorithms.ts";
import type { Reply } from "../http/respond.ts";
import { verifyAccessToken } from "./access-token.ts";
import { type Scheme, credentialsOf } from "./authorization.ts";
import { type ChallengeTerms, replyTo } from "./challenge.ts";
import { createConfirmation } from "./confirmation.ts";
import { metadataUrl } from "./metadata.ts";
import { type Refusal, refusalOf } from "./refusal.ts";
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

/** What a guard sees of a request. Header fields that came several times are joined by commas. */
export interface GuardedRequest {
  readonly method: string;
  /** The request target: path and query. */
  readonly target: string;
  /** `Authorization`. */
  readonly authorization: string | undefined;
  /** `DPoP`. */
  readonly proof: string | undefined;
  /** The request as the face has it, for the function `certificate`. */
  readonly source: object;
}

/** The decision about a request: who sent it, or what to answer. */
export type AccessDecision = { readonly auth: Auth } | { readonly reply: Reply };

const schemesOf = { none: ["Bearer"], optional: ["Bearer", "DPoP"], required: ["DPoP"] } as const;

/** Decides about requests, for all faces. */
export function createGuard(settings: BearerSettings) {
  const { dpop, resource, onEvent } = settings;
  const keysOf = createTrustedIssuers(settings);
  const confirm = createConfirmation(settings);
  /** The tokens whose proofs were confirmed, by request. A route may have the guard twice, but a proof is valid once. */
  const confirmed = new WeakMap<object, string>();
  const terms: ChallengeTerms = {
    schemes: schemesOf[dpop ?? "none"],
    algorithms: publicKeyAlgorithms,
    resourceMetadata: resource && metadataUrl(resource),
  };

  async function decide(request: GuardedRequest, requirements: Requirements): Promise<AccessDecision> {
    const credentials = credentialsOf(request.authorization, request.target, terms.schemes);
    if (!("token" in credentials)) return refuse(credentials, undefined);
    try {
      const auth = await authOf(credentials.token);
      if (confirmed.get(request.source) !== credentials.token) {
        const unconfirmed = await confirm(auth.claims, credentials, request);
        if (unconfirmed !== undefined) return refuse(unconfirmed, credentials.scheme);
        confirmed.set(request.source, credentials.token);
      }
      const lacking = unmet(requirements, auth.claims, auth.scopes, settings);
      return lacking === undefined ? { auth } : refuse(lacking, credentials.scheme);
    } catch (error) {
      return refuse(refusalOf(error), credentials.scheme);
    }
  }

  /** @throws TokenError, FetchError */
  const authOf = (token: string): Promise<Auth> => authOfToken(token, keysOf, settings);

  function refuse(refusal: Refusal, scheme: Scheme | undefined): AccessDecision {
    const { status, error, description, hint, code, cause } = refusal;
    const reason = [description, hint].filter((text) => text !== undefined).join(": ");
    notify(onEvent, code === undefined ? { type: "refused", status, error, reason } : { type: "failed", code, cause });
    return { reply: replyTo(refusal, scheme, terms) };
  }

  return { decide, authOf };
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
