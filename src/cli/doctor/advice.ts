import { durationText } from "../../base/format.ts";
import type { Explanation } from "./explain.ts";

interface Context {
  readonly issuer: string;
  /** The command that looks at the provider. */
  readonly doctor: string;
  /** Whether that command is this one, so its findings are beside the advice. */
  readonly isDoctor?: true;
  /** How long caches may keep the set, if that was looked at. */
  readonly keptSeconds?: number | undefined;
}

const daySeconds = 86_400;

/** What to do after a verification; `undefined` where there is nothing to do. */
export function adviceFor({ verified, steps }: Explanation, context: Context): string | undefined {
  const { issuer, doctor, isDoctor, keptSeconds = 0 } = context;
  const watch = `${doctor} --watch 10m`;
  const looked = isDoctor === true ? "the findings say" : `${doctor} says`;
  if (verified) {
    if (steps.some(({ cause }) => cause === "next answer"))
      return `If the key is not new, servers of the provider disagree, and other tokens fail by chance: ${watch}`;
    return keptSeconds > daySeconds
      ? `If your API refuses the token, it may have an older set: caches may keep one for up to ${durationText(keptSeconds * 1000)}. Restart the API, or let it fetch the set again.`
      : undefined;
  }
  const { code, cause } = steps.at(-1) ?? {};
  switch (cause) {
    case "iss":
      return "Get a token of the expected issuer; verifiers compare every character. If the provider writes the one into its discovery document and the other into its tokens, let it write the same into both.";
    case "aud":
      return "If the token is meant for this verifier, let the verifier expect its audience (jwksd verify: --aud); else ask the provider for one that is.";
    case "opaque":
      return "Ask the provider about the token (RFC 7662), or let it issue JWTs (RFC 9068) for your API; many providers do so only for a client that names the API. If it was a JWT, give the whole token: what follows Bearer in the Authorization header.";
    case "encrypted":
      return "Decrypt the token where its private key is. If your API has no such key, let the provider encrypt no tokens for it.";
    case "unsigned":
      return "Refuse such tokens everywhere, and let the provider sign them.";
    case "shared secret":
      return "Let the provider sign with a key that it publishes; often that is a setting of the client or of the API. A verifier that has the secret needs no JWK Set.";
    case "nbf":
      return "Set the clocks of the provider and of this machine: the token begins to be valid later. If both are right, the provider issues tokens for later, or writes local time as UTC.";
    case "two issuers":
      return "Let the provider name itself in one way: verifiers compare every character, so with two issuers they refuse the document or the tokens.";
    case "unusable key":
      return `Let the provider publish the key in a form that verifiers can read: ${looked} what is wrong with it.`;
    case "other key":
      return "Let the provider write into tokens the kid under which it publishes the key that signs, and give each published key a kid.";
    case "der":
      return 'Let the provider write the signature as r and s of equal length, as RFC 7518 section 3.4 says, and not as DER. Many libraries have an option for this; in Node, it is dsaEncoding: "ieee-p1363".';
  }
  switch (code) {
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
      return `Check that ${issuer} issued this token, and get a new one: the key of an old token may have been removed or revoked. If a new one fails too, the provider, or one of its servers, does not publish the key that signs: ${watch}`;
    case "ERR_TOKEN_SIGNATURE":
      return "Get the token again, because it may have been changed on its way. If a new one fails too, the provider signs with a key that it does not publish: let it publish that key, under a kid of its own.";
    case "ERR_TOKEN_EXPIRED":
      return "Get a new token. If this one is new, set the clocks of the provider and of this machine.";
    case "ERR_TOKEN_CLAIM":
      return "Let the provider issue tokens with this claim, in the form that RFC 7519 section 4.1 says.";
    case "ERR_TOKEN_TYP":
      return "If the token is meant for this verifier, let the verifier expect its type (jwksd verify: --typ); else ask the provider for one that is.";
    case "ERR_DISCOVERY_ISSUER":
      return "Give --issuer exactly as the discovery document has it, if that is the right provider.";
    default:
      return `The keys could not be had, so the token was not checked: ${looked} what is wrong.`;
  }
}

/** `jwksd doctor` for a URL, with the flag that it needs there. */
export const doctorCommandFor = (url: string, allowInsecure: boolean | undefined): string =>
  `jwksd doctor ${url}${allowInsecure === true || url.startsWith("http:") ? " --allow-insecure" : ""}`;
