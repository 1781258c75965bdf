import { type Reply, problem } from "../http/respond.ts";
import type { Scheme } from "./authorization.ts";
import type { Refusal } from "./refusal.ts";

/** The part that all challenges of a guard have in common. */
export interface ChallengeTerms {
  readonly schemes: readonly Scheme[];
  /** Algorithms of DPoP proofs. */
  readonly algorithms: readonly string[];
  /** Where the metadata of the resource is. @see RFC 9728 section 5.1 */
  readonly resourceMetadata: string | undefined;
}

const titles = { 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 503: "Service Unavailable" } as const;

/** The response to a request that is refused. @see RFC 6750 section 3; RFC 9457 */
export function replyTo(refusal: Refusal, scheme: Scheme | undefined, terms: ChallengeTerms): Reply {
  const { status, description = needed(terms), retryAfterSeconds, nonce } = refusal;
  const headers: string[] = [];
  if (retryAfterSeconds !== undefined) headers.push("Retry-After", String(retryAfterSeconds));
  else headers.push("WWW-Authenticate", challengesOf(refusal, scheme, terms));
  if (nonce !== undefined) headers.push("DPoP-Nonce", nonce);
  return problem(status, titles[status], quotable(description), headers).get;
}

const needed = ({ schemes: [scheme] }: ChallengeTerms): string =>
  `This needs an access token, sent as 'Authorization: ${scheme} TOKEN'.`;

/** One challenge for each scheme. The error is told under the scheme that was used. @see RFC 9449 section 7.2 */
function challengesOf(refusal: Refusal, used: Scheme | undefined, terms: ChallengeTerms): string {
  const { schemes, algorithms, resourceMetadata } = terms;
  const told = used ?? schemes[0];
  return schemes
    .map((scheme) => {
      const { error, description, parameters } = scheme === told ? refusal : {};
      const all = {
        error,
        error_description: description,
        ...parameters,
        algs: scheme === "DPoP" ? algorithms.join(" ") : undefined,
        resource_metadata: resourceMetadata,
      };
      const given = Object.entries(all).filter((entry): entry is [string, string] => entry[1] !== undefined);
      return [scheme, given.map(([name, value]) => `${name}="${quotable(value)}"`).join(", ")].join(" ").trimEnd();
    })
    .join(", ");
}

/** Without what a quoted-string would have to escape. @see RFC 6750 section 3 */
export function quotable(text: string): string {
  return text.replaceAll('"', "'").replace(/[^ !#-[\]-~]/g, "?");
}
