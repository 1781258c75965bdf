import type { Explanation } from "./explain.ts";

/** What to do about a token that a step refuses; `undefined` for a good one. */
export function adviceFor({ verified, steps }: Explanation, issuer: string): string | undefined {
  if (verified) return undefined;
  switch (steps.at(-1)?.code) {
    case "ERR_TOKEN_MALFORMED":
    case "ERR_TOKEN_TOO_LARGE":
      return "Give the whole token and nothing else: what follows Bearer in the Authorization header.";
    case "ERR_TOKEN_ALG":
      return "If the provider is to sign so, accept the algorithm with --alg; else let it sign with one that is accepted.";
    case "ERR_TOKEN_CRIT":
      return "Let the provider sign without these header parameters; verifiers that do not know them must refuse the token.";
    case "ERR_TOKEN_KID_MISSING":
      return "Let the provider put the kid of the key that signs into the header.";
    case "ERR_TOKEN_KID_UNKNOWN":
      return `Check that ${issuer} issued this token, and get a new one: the key of an old token may have been removed or revoked. If a new one fails too, the provider, or one of its servers, does not publish the key that signs: jwksd doctor ${issuer} --watch 10m`;
    case "ERR_TOKEN_SIGNATURE":
      return `Get the token again, because it may have been changed on its way. If a new one fails too, the provider signs with another key than it publishes: jwksd doctor ${issuer}`;
    case "ERR_TOKEN_EXPIRED":
      return "Get a new token. If this one is new, set the clocks of the provider and of this machine.";
    case "ERR_TOKEN_CLAIM":
    case "ERR_TOKEN_TYP":
      return "If the token is meant for this verifier, let the verifier expect its issuer, audience and type, to the character (jwksd verify: --issuer, --aud, --typ); else ask the provider for one that is.";
    case "ERR_DISCOVERY_ISSUER":
      return "Give --issuer exactly as the discovery document has it, if that is the right provider.";
    default:
      return `The keys could not be had, so the token was not checked: jwksd doctor ${issuer} says what is wrong.`;
  }
}
