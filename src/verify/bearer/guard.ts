import { notify } from "../../base/async.ts";
import { type ErrorCode, invalidOption } from "../../base/errors.ts";
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
} from "./authorization.ts";
import { createConfirmation } from "./confirmation.ts";
import { resourceMetadataUrl } from "./metadata.ts";
import {
  type ChallengeTerms,
  type Denial,
  type Refusal,
  type Scheme,
  deniedBy,
  invalidToken,
  refusalOf,
  replyTo,
} from "./refusal.ts";
import { type Auth, type Requirements, checkDenial, scopesOf, shownScope, unmet } from "./requirements.ts";
import type { BearerEvent } from "./options.ts";
import type { BearerSettings } from "./settings.ts";
import { type KeysOf, createTrustedIssuers } from "./trusted-issuers.ts";

/** The decision about a request: who sent it (nobody knows, where a token is optional), or what to answer. */
export type AccessDecision = { readonly auth: Auth | undefined } | { readonly reply: Reply };

/** A request that was let through. */
interface Admitted {
  readonly request: GuardedRequest;
  readonly scheme: Scheme | undefined;
  readonly auth: Auth | undefined;
}

/** What to send to a request that is refused, in any framework. */
export interface Challenge {
  readonly status: 401 | 403;
  readonly headers: Readonly<Record<string, string>>;
  /** Problem details in JSON. @see RFC 9457 */
  readonly body: string;
}

const schemesOf = { none: ["Bearer"], optional: ["Bearer", "DPoP"], required: ["DPoP"] } as const;

/** Decides about requests, for all adapters. */
export interface Guard {
  decide(this: void, request: GuardedRequest, requirements: Requirements): Promise<AccessDecision>;
  /** The auth of a token alone. @throws TokenError, FetchError */
  verify(this: void, token: string): Promise<Auth>;
  /** Who sent a request that was let through. */
  authOf(this: void, source: object): Auth | undefined;
  /** See `Bearer`. */
  challenge(this: void, source: object, denial: Denial): Challenge;
  refresh(this: void): Promise<void>;
}

export function createGuard(settings: BearerSettings): Guard {
  const { dpop, resource, onEvent, clock, verification, requestId } = settings;
  const { keysOf, refresh } = createTrustedIssuers(settings);
  const confirm = createConfirmation(settings);
  /** The tokens whose proofs were confirmed, by request. A route may have the guard twice, but a proof is valid once. */
  const confirmed = new WeakMap<object, string>();
  /** Who sent the requests that were let through. */
  const admitted = new WeakMap<object, Admitted>();
  const terms: ChallengeTerms = {
    schemes: schemesOf[dpop ?? "none"],
    algorithms: publicKeyAlgorithms,
    resourceMetadata: resource && resourceMetadataUrl(resource),
    realm: [verification.audience].flat()[0] ?? "",
    isInHeader: settings.token === undefined,
  };

  async function decide(request: GuardedRequest, requirements: Requirements): Promise<AccessDecision> {
    const { source } = request;
    const credentials = await found(request, requirements.optional === true).catch(refusalOf);
    if (credentials === undefined) {
      admitted.set(source, { request, scheme: undefined, auth: undefined });
      return { auth: undefined };
    }
    const scheme = schemeOf(request.authorization, terms.schemes);
    const outcome =
      "token" in credentials ? await admit(credentials, request, requirements).catch(refusalOf) : credentials;
    if ("claims" in outcome) {
      admitted.set(source, { request, scheme, auth: outcome });
      return { auth: outcome };
    }
    tell(outcome, request);
    return { reply: replyTo(outcome, scheme, terms, shownScope(requirements.scope)) };
  }

  /** `undefined` where there is no token, and none need be. */
  async function found(
    { target, authorization = "", source }: GuardedRequest,
    isOptional: boolean,
  ): Promise<Credentials | Refusal | undefined> {
    if (settings.token === undefined) {
      if (isOptional && authorization === "" && !hasQueryToken(target)) return undefined;
      return credentialsOf(authorization, target, terms.schemes);
    }
    const token: unknown = await settings.token(source as never);
    if (token === undefined || token === null || token === "")
      return isOptional ? undefined : { status: 401, hint: "there is no token" };
    return credentialsElsewhere(token, target);
  }

  async function admit(
    credentials: Credentials,
    request: GuardedRequest,
    requirements: Requirements,
  ): Promise<Auth | Refusal> {
    const { token } = credentials;
    const auth = await verify(token);
    if (confirmed.get(request.raw) !== token) {
      const unconfirmed = await confirm(auth.claims, credentials, request);
      if (unconfirmed !== undefined) return unconfirmed;
      confirmed.set(request.raw, token);
      if (hasExpired(auth)) return invalidToken("the token has expired");
    }
    const lack = unmet(requirements, auth.claims, auth.scopes, settings);
    if (lack !== undefined || requirements.check === undefined) return lack ?? auth;
    const verdict: unknown = await requirements.check(auth, request.source as never);
    if (verdict !== true) return deniedBy(object.holds(verdict) ? checkDenial(verdict as unknown as Denial) : denial);
    return hasExpired(auth) ? invalidToken("the token has expired") : auth;
  }

  function challenge(source: object, denial: Denial): Challenge {
    const known = admitted.get(source);
    if (known === undefined) throw invalidOption("challenge() takes a request that this guard has let through");
    const { description, scope } = checkDenial(denial);
    const refusal = known.auth === undefined ? { status: 401 as const, hint: description, scope } : deniedBy(denial);
    tell(refusal, known.request);
    const reply = replyTo(refusal, known.scheme, terms, undefined);
    // Frameworks count the bytes themselves.
    const { "Content-Length": _, ...headers } = Object.fromEntries(fieldsOf(reply));
    return { status: reply.status as 401 | 403, headers, body: reply.body ?? "" };
  }

  /** A token may expire while a store or a function of the application confirms its sender. */
  const hasExpired = ({ expiresAt }: Auth): boolean =>
    expiresAt + verification.clockToleranceSeconds <= Math.floor(clock.now() / 1000);

  const verify = (token: string): Promise<Auth> => authOfToken(token, keysOf, settings);

  function tell({ status, error, description, hint, code, cause }: Refusal, request: GuardedRequest): void {
    const reason = [description, hint].filter((text) => text !== undefined).join(": ");
    const { method, target, source } = request;
    notify(
      (told: Told) => onEvent?.({ ...told, method, path: targetPath(target), id: idOf(source) }),
      status === 503
        ? { type: "failed", code: code ?? "ERR_INTERNAL", cause }
        : { type: "refused", status, error, code, reason },
    );
  }

  /** An event is told, whatever the function of the application does. */
  function idOf(source: object): string | undefined {
    try {
      const id: unknown = requestId?.(source as never);
      return typeof id === "string" ? id : undefined;
    } catch {
      return undefined;
    }
  }

  const authOf = (source: object): Auth | undefined => admitted.get(source)?.auth;
  return { decide, verify, authOf, challenge, refresh };
}

const denial: Denial = { status: 403, description: "the token does not allow this request" };

/** An event before the request is added. */
type Told =
  | { readonly type: "failed"; readonly code: ErrorCode; readonly cause: unknown }
  | Pick<Extract<BearerEvent, { type: "refused" }>, "type" | "status" | "error" | "code" | "reason">;

async function authOfToken(token: string, keysOf: KeysOf, settings: BearerSettings): Promise<Auth> {
  const { claims, header } = await verifyAccessToken(token, keysOf, settings);
  const clientId = claims["client_id"] ?? claims["azp"];
  return {
    claims: claims as Auth["claims"],
    header,
    scopes: scopesOf(claims, settings.scopeClaims),
    clientId: typeof clientId === "string" ? clientId : "",
    expiresAt: claims.exp as number,
    token,
  };
}
