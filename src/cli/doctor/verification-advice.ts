import { durationText } from "../../base/format.ts";

/** Facts on which the advice depends. */
interface Context {
  readonly issuer: string;
  /** Command that checks the provider. */
  readonly doctor: string;
  /** Set if the doctor itself is running, in which case its findings are printed along with the advice. */
  readonly isDoctor?: true;
  /** How long caches may keep the set, if the response is known. */
  readonly keptSeconds?: number | undefined;
}

const wholeToken = "Pass the whole token and nothing else: the part after Bearer in the Authorization header.";
const watching = ({ doctor }: Context): string => `to check, run: ${doctor} --watch 10m`;
const says = ({ doctor, isDoctor }: Context): string =>
  isDoctor === true ? "the findings say" : `run ${doctor} to find out`;

const adviceByCause = {
  malformed: wholeToken,
  opaque: `Ask the provider about the token (RFC 7662), or configure it to issue JWTs (RFC 9068) for your API; many providers do so only if the client names the API. If it is supposed to be a JWT, pass the whole token and nothing else: the part after Bearer in the Authorization header.`,
  encrypted:
    "Decrypt the token in the program that has the private key. If your API has no private key for it, configure the provider not to encrypt your tokens.",
  unsigned: "Reject such tokens everywhere, and configure the provider to sign its tokens.",
  "shared secret":
    "Configure the provider to sign with a key that it publishes; many providers have a setting for this on each client or API. A verifier that has the secret does not need a JWK Set.",
  algorithm:
    "If the provider is supposed to sign with this algorithm, accept it (jwksd verify: --alg). If not, configure the provider to sign with an accepted algorithm.",
  "critical header":
    "Configure the provider to sign without these header parameters, because verifiers that do not know them must reject the token.",
  "no keys": (context: Context) =>
    `The keys could not be fetched, so the token was not checked; ${says(context)} what is wrong.`,
  "other issuer": "If this is the right provider, pass --issuer exactly as it appears in the discovery document.",
  "two issuers":
    "Configure the provider to use the same issuer everywhere. Verifiers compare every character, so they reject the document or the tokens if the provider uses two different issuers.",
  "no kid": "Configure the provider to put the signing key's kid in the header.",
  "unknown kid": (context: Context) =>
    `Check that ${context.issuer} issued this token, and get a new one, because an old token's key may have been removed or revoked. If a new token fails too, the provider, or one of its servers, does not publish the signing key; ${watching(context)}`,
  "cached set": (context: Context) =>
    `Purge the cache in front of the provider, and configure it to follow Cache-Control, because the cached set may be older than the token's key. If verification fails with a new response too, the provider's servers disagree; ${watching(context)}`,
  "unusable key": (context: Context) =>
    `Publish the key in a form that verifiers can read; ${says(context)} what is wrong with it.`,
  "other key":
    "Give each published key a kid, and configure the provider to put the signing key's kid into its tokens.",
  der: 'Write the signature as r and s of equal length, as RFC 7518 section 3.4 requires, not as DER. Many libraries have an option for this; in Node, it is dsaEncoding: "ieee-p1363".',
  signature:
    "Get the token again, because it may have been changed in transit. If a new token fails too, the provider signs with a key that it does not publish; publish that key under its own kid.",
  typ: "If the token is meant for this verifier, configure the verifier to expect the token's type (jwksd verify: --typ). If not, request a token that is meant for it.",
  iss: "Get a token from the expected issuer. Verifiers compare every character of the issuer. If the provider's discovery document and tokens name different issuers, configure the provider to use the same issuer in both.",
  aud: "If the token is meant for this verifier, configure the verifier to expect the token's audience (jwksd verify: --aud). If not, request a token that is meant for it.",
  nbf: "The token is not valid yet, so synchronize the clocks of the provider and of this machine. If both clocks are right, the provider issues tokens that become valid later, or writes local time as UTC.",
  expired: "Get a new token. If this token is new, synchronize the clocks of the provider and of this machine.",
  claim: "Configure the provider to issue tokens with this claim, in the form that RFC 7519 section 4.1 requires.",
  "no audience":
    "Like access tokens from Amazon Cognito, the token has no aud, so an API that expects an audience rejects it. Configure the API to check another claim, such as client_id.",
  "next answer": (context: Context) =>
    `If the key is not new, the provider's servers disagree, and other tokens fail at random; ${watching(context)}`,
} as const satisfies Readonly<Record<string, string | ((context: Context) => string)>>;

/**
 * The reason a token was rejected or, for a token that is accepted here, the reason other verifiers might reject it
 * (`no audience`, `next answer`).
 */
export type Cause = keyof typeof adviceByCause;

/** The part of an explanation that the advice depends on. */
interface Explained {
  readonly verified: boolean;
  readonly steps: readonly { readonly cause?: Cause | undefined }[];
}

const daySeconds = 86_400;

/** Returns advice on what to do after a verification, or `undefined` if there is nothing to do. */
export function adviceFor({ verified, steps }: Explained, context: Context): string | undefined {
  const cause = steps.findLast((step) => step.cause !== undefined)?.cause;
  if (cause !== undefined) {
    const advice = adviceByCause[cause];
    return typeof advice === "string" ? advice : advice(context);
  }
  const { keptSeconds = 0 } = context;
  if (!verified || keptSeconds <= daySeconds) return undefined;
  return `If your API rejects the token, it may have an older set, because caches may keep a set for up to ${durationText(keptSeconds * 1000)}. Restart the API, or make it fetch the set again.`;
}

/** Returns the `jwksd doctor` command for a URL, with the flag that the URL needs. */
export const doctorCommandFor = (url: string, allowInsecure: boolean | undefined): string =>
  `jwksd doctor ${url}${allowInsecure === true || url.startsWith("http:") ? " --allow-insecure" : ""}`;
