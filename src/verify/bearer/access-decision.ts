import { notify } from "../../base/async.ts";
import { type JwksdErrorCode, invalidOption } from "../../base/errors.ts";
import { object } from "../../base/options.ts";
import { targetPath } from "../../base/urls.ts";
import { publicKeyAlgorithms } from "../../keys/crypto/algorithms.ts";
import { type Reply, fieldsOf } from "../../publish/respond.ts";
import { verifyAccessToken } from "./access-token.ts";
import {
  type Credentials,
  type GuardedRequest,
  credentialsElsewhere,
  credentialsOf,
  hasQueryToken,
  schemeOf,
} from "./authorization-header.ts";
import { resourceMetadataUrl } from "./metadata.ts";
import {
  type ChallengeTerms,
  type ApplicationDenial,
  type Refusal,
  RefusedRequest,
  type Scheme,
  deniedBy,
  invalidToken,
  reasonOf,
  refusalOf,
  replyTo,
} from "./refusal.ts";
import {
  type VerifiedAccessToken,
  type CheckedRequirements,
  challengedScope,
  checkDenial,
  refuseUnmet,
  scopesOf,
} from "./requirements.ts";
import type { BearerSettings } from "./settings.ts";
import { createConfirmation } from "./token-binding.ts";
import { createTrustedIssuers } from "./trusted-issuers.ts";
import type { BearerGuardEvent } from "./types.ts";

/**
 * The decision about a request: either the request's sender, or a refusal and the response to send. If a token is
 * optional and missing, the sender is `undefined`.
 */
export type AccessDecision =
  | { readonly auth: VerifiedAccessToken | undefined }
  | { readonly refusal: Refusal; readonly reply: Reply };

/** Decides whether a request to one route is let through. The promise never rejects. */
export type Decide = (this: void, request: GuardedRequest) => Promise<AccessDecision>;

/** A request that was let through. */
interface Admitted {
  readonly request: GuardedRequest;
  readonly scheme: Scheme | undefined;
  readonly auth: VerifiedAccessToken | undefined;
}

/** The response to a refused request, in a form that suits any framework. */
export interface Challenge {
  readonly status: 401 | 403;
  readonly headers: Readonly<Record<string, string>>;
  /** Problem details as JSON. @see RFC 9457 */
  readonly body: string;
}

const schemesOf = { none: ["Bearer"], optional: ["Bearer", "DPoP"], required: ["DPoP"] } as const;
const defaultDenial: ApplicationDenial = { status: 403, description: "the token does not allow this request" };

/** Decides, on behalf of all adapters, which requests are let through. */
export interface Guard {
  decide(this: void, request: GuardedRequest, requirements: CheckedRequirements): Promise<AccessDecision>;
  /** Verifies a token on its own, without a request. Returns the token's auth. @throws TokenError, FetchError */
  verify(this: void, token: string): Promise<VerifiedAccessToken>;
  /** Returns the sender of a request that was let through. */
  authOf(this: void, source: object): VerifiedAccessToken | undefined;
  /** See `BearerGuard`. */
  challenge(this: void, source: object, denial: ApplicationDenial): Challenge;
  refresh(this: void): Promise<void>;
}

export function createGuard(settings: BearerSettings): Guard {
  const { dpop, resource, onEvent, clock, verification, requestId } = settings;
  const { keysOf, refresh } = createTrustedIssuers(settings);
  const confirm = createConfirmation(settings);
  /**
   * Tokens whose proofs were confirmed, keyed by request. They are remembered because a route may have two guards, but
   * a proof is valid only once.
   */
  const confirmed = new WeakMap<object, string>();
  const admitted = new WeakMap<object, Admitted>();
  const terms: ChallengeTerms = {
    schemes: schemesOf[dpop ?? "none"],
    algorithms: publicKeyAlgorithms,
    resourceMetadata: resource && resourceMetadataUrl(resource),
    realm: [verification.audience].flat()[0] ?? "",
    isInHeader: settings.token === undefined,
  };

  async function decide(request: GuardedRequest, requirements: CheckedRequirements): Promise<AccessDecision> {
    const scheme = schemeOf(request.authorization, terms.schemes);
    try {
      const credentials = await findCredentials(request, requirements.optional === true);
      const auth = credentials && (await admit(credentials, request, requirements));
      admitted.set(request.source, { request, scheme: credentials?.scheme, auth });
      return { auth };
    } catch (error) {
      const refusal = refusalOf(error);
      report(refusal, request);
      return { refusal, reply: replyTo(refusal, scheme, terms, challengedScope(requirements.scope)) };
    }
  }

  /** Returns the request's credentials, or `undefined` if the token is optional and missing. @throws RefusedRequest */
  async function findCredentials(
    { target, authorization = "", source }: GuardedRequest,
    isOptional: boolean,
  ): Promise<Credentials | undefined> {
    if (settings.token === undefined) {
      if (isOptional && authorization === "" && !hasQueryToken(target)) return undefined;
      return credentialsOf(authorization, target, terms.schemes);
    }
    const token = await settings.token(source);
    if (token !== undefined && token !== null && token !== "") return credentialsElsewhere(token, target);
    if (isOptional) return undefined;
    throw new RefusedRequest({ status: 401, hint: "there is no token" });
  }

  /**
   * Returns the auth of a request that is let through.
   *
   * @throws RefusedRequest, TokenError, FetchError, the application's errors
   */
  async function admit(
    credentials: Credentials,
    request: GuardedRequest,
    requirements: CheckedRequirements,
  ): Promise<VerifiedAccessToken> {
    const { token } = credentials;
    const auth = await verify(token);
    if (confirmed.get(request.raw) !== token) {
      await confirm(auth.claims, credentials, request);
      confirmed.set(request.raw, token);
      refuseExpired(auth);
    }
    refuseUnmet(requirements, auth, settings);
    if (requirements.check === undefined) return auth;
    const verdict = await requirements.check(auth, request.source);
    if (verdict !== true)
      throw new RefusedRequest(deniedBy(object.holds(verdict) ? checkDenial(verdict) : defaultDenial));
    refuseExpired(auth);
    return auth;
  }

  /**
   * Refuses a token that expired while a store or one of the application's functions was confirming its sender.
   *
   * @throws RefusedRequest
   */
  function refuseExpired({ expiresAt }: VerifiedAccessToken): void {
    if (expiresAt + verification.clockToleranceSeconds <= Math.floor(clock.now() / 1000))
      throw invalidToken("the token has expired");
  }

  function challenge(source: object, denial: ApplicationDenial): Challenge {
    const known = admitted.get(source);
    if (known === undefined) throw invalidOption("challenge() requires a request that this guard has let through");
    const { status, description, scope } = checkDenial(denial);
    const isAnonymous = known.auth === undefined;
    const refusal: Refusal = isAnonymous ? { status: 401, hint: description, scope } : deniedBy(denial);
    report(refusal, known.request);
    const reply = replyTo(refusal, known.scheme, terms, undefined);
    // The framework sets the length.
    const { "Content-Length": _, ...headers } = Object.fromEntries(fieldsOf(reply));
    return { status: isAnonymous ? 401 : status, headers, body: reply.body ?? "" };
  }

  async function verify(token: string): Promise<VerifiedAccessToken> {
    const { claims, header } = await verifyAccessToken(token, keysOf, settings);
    const clientId = claims["client_id"] ?? claims["azp"];
    return {
      claims,
      header,
      scopes: scopesOf(claims, settings.scopeClaims),
      clientId: typeof clientId === "string" ? clientId : "",
      expiresAt: claims.exp,
      token,
    };
  }

  function report(refusal: Refusal, request: GuardedRequest): void {
    const { status, error, code, cause } = refusal;
    const { method, target, source } = request;
    notify(
      (event: EventStart) => onEvent?.({ ...event, method, path: targetPath(target), id: idOf(source) }),
      status === 503
        ? { type: "failed", code: code ?? "ERR_INTERNAL", cause }
        : { type: "refused", status, error, code, reason: reasonOf(refusal) },
    );
  }

  /**
   * Returns the request's ID. Ignores errors from the application's function, because they must not keep the event from
   * being reported.
   */
  function idOf(source: object): string | undefined {
    try {
      const id = requestId?.(source);
      return typeof id === "string" ? id : undefined;
    } catch {
      return undefined;
    }
  }

  const authOf = (source: object): VerifiedAccessToken | undefined => admitted.get(source)?.auth;
  return { decide, verify, authOf, challenge, refresh };
}

/** An event before the request is added to it. */
type EventStart =
  | { readonly type: "failed"; readonly code: JwksdErrorCode; readonly cause: unknown }
  | Pick<Extract<BearerGuardEvent, { type: "refused" }>, "type" | "status" | "error" | "code" | "reason">;
