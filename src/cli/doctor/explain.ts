import type { JWSHeaderParameters } from "jose";
import { decodeJwt } from "jose/jwt/decode";
import { decodeProtectedHeader } from "jose/decode/protected_header";
import { isPublicKeyAlgorithm } from "../../keys/crypto/algorithms.ts";
import { JwksdError, TokenError } from "../../base/errors.ts";
import { createRemoteKeySet } from "../../library/relying-party/remote-key-set.ts";
import { printable } from "../../base/printable.ts";
import { relativeText, timeText } from "../../rotation/rules/format.ts";
import { maxTokenBytes } from "../../library/token/compact-jws.ts";
import { type VerifyOptions, checkVerifyOptions, verify } from "../../library/token/verify.ts";

/** One step of a verification, and its result. */
export interface Step {
  readonly step: "token" | "discovery" | "jwks" | "key" | "signature" | "claims";
  readonly ok: boolean;
  readonly detail: string;
  /** Error code of a failed step. */
  readonly code?: string | undefined;
}

/** The result of a verification. */
export interface Explanation {
  readonly verified: boolean;
  readonly steps: readonly Step[];
}

/** A JWK Set. */
interface KeySource {
  /** The step in which the set is read. */
  readonly step: "discovery" | "jwks";
  /** Reads the set: where it is, and its text. */
  readonly load: () => Promise<{ readonly where: string; readonly body: string }>;
  readonly getKey: VerifyOptions["keys"];
}

/** The expected claims and header of a token; see `verify`. */
interface Expected extends Pick<VerifyOptions, "algorithms" | "typ"> {
  readonly issuer: string;
  readonly audience: readonly string[];
}

interface ExplainOptions extends Expected {
  /** URL of the JWK Set. Default: that of the discovery document. */
  readonly jwksUri?: string | undefined;
  readonly allowInsecure?: boolean | undefined;
}

/** Errors that `verify` throws only after the signature was verified. */
const aboutClaims: ReadonlySet<string> = new Set(["ERR_TOKEN_CLAIM", "ERR_TOKEN_EXPIRED", "ERR_TOKEN_TYP"]);

/** The latest time of a `Date`. */
const longestMs = 8.64e15;

const goodSignature: Step = { step: "signature", ok: true, detail: "is that of the published key" };

/**
 * Verifies a token as a relying party does, and reports each step up to the first failure.
 *
 * @throws ConfigError `ERR_OPTION_INVALID`, FetchError `ERR_URL_INSECURE` for wrong options
 */
export async function explainVerification(
  token: string,
  { allowInsecure, jwksUri, ...expected }: ExplainOptions,
): Promise<Explanation> {
  const where = jwksUri === undefined ? { issuer: expected.issuer } : { jwksUri };
  const keySet = createRemoteKeySet({ ...where, allowInsecure });
  try {
    return await explain(token, expected, {
      step: jwksUri === undefined ? "discovery" : "jwks",
      getKey: keySet.getKey,
      async load() {
        await keySet.refresh();
        const { jwksUri, body } = keySet.state() ?? { jwksUri: "", body: '{"keys":[]}' };
        return { where: jwksUri, body };
      },
    });
  } finally {
    keySet.close();
  }
}

/** {@link explainVerification} with the keys of any source. @throws ConfigError `ERR_OPTION_INVALID` */
export async function explain(token: string, expected: Expected, source: KeySource): Promise<Explanation> {
  const steps: Step[] = [];
  const verifyOptions = { ...expected, keys: source.getKey };
  checkVerifyOptions(verifyOptions);
  let step: Step["step"] = "token";
  const done = (detail: string): number => steps.push({ step, ok: true, detail });
  try {
    const header = headerOf(token);
    const [alg, kid, typ] = [header.alg, header.kid, header.typ].map((value) => shown(value));
    done(`${token.length} bytes, alg ${alg}, kid ${kid}, typ ${typ}`);

    ({ step } = source);
    const { where, body } = await source.load();
    const { keys } = JSON.parse(body) as { keys: ({ kid?: unknown } | null)[] };
    const kids = keys.map((key) => shown(key?.kid, "(no kid)"));
    done(`${where} has ${keys.length === 1 ? "1 key" : `${keys.length} keys`}: ${kids.join(", ")}`);

    step = "key";
    await source.getKey(header);
    done(`kid ${header.kid} is published, for ${header.alg}`);

    step = "claims";
    const { claims } = await verify(token, verifyOptions);
    steps.push(goodSignature);
    const secondsLeft = Math.round((claims.exp ?? 0) - Date.now() / 1000);
    const audiences = [claims.aud].flat().map((aud) => shown(aud));
    done(`iss ${claims.iss}, aud ${audiences.join(", ")}, expires in ${secondsLeft} s`);
    return { verified: true, steps };
  } catch (error) {
    if (!(error instanceof JwksdError)) throw error;
    if (step === "claims") {
      if (aboutClaims.has(error.code)) steps.push(goodSignature);
      else step = "signature";
    }
    const detail = [error.message, ...comparison(token, error.code, expected)].join("; ");
    steps.push({ step, ok: false, detail: `${detail} [${error.code}]`, code: error.code });
    return { verified: false, steps };
  }
}

/** The steps as lines of text. */
export function stepLines({ steps }: Explanation): string[] {
  return steps.map(({ ok, step, detail }) => `${ok ? "ok  " : "FAIL"}  ${step.padEnd(10)} ${printable(detail)}`);
}

/** The value in the token, the expected value, and what to do, for a refused token. */
function comparison(token: string, code: string, { issuer, audience, algorithms, typ }: Expected): string[] {
  if (code === "ERR_TOKEN_ALG") {
    const { alg } = decodeProtectedHeader(token);
    if (algorithms.includes(alg ?? "")) return [];
    return [has("alg", alg, algorithms), ...(isPublicKeyAlgorithm(alg) ? [`to accept it, add --alg ${alg}`] : [])];
  }
  if (code === "ERR_TOKEN_TYP") return [has("typ", decodeProtectedHeader(token).typ, [typ ?? ""])];
  if (!aboutClaims.has(code)) return [];
  const { iss, aud, exp, nbf } = decodeJwt(token);
  if (code === "ERR_TOKEN_EXPIRED") return [when("exp", exp)];
  const isMeant = [aud].flat().some((one) => audience.includes(one ?? ""));
  return [
    ...(iss === issuer ? [] : [has("iss", iss, [issuer])]),
    ...(isMeant ? [] : [has("aud", aud, audience)]),
    ...(typeof nbf === "number" && nbf * 1000 > Date.now() ? [when("nbf", nbf)] : []),
  ];
}

function has(name: string, value: unknown, expected: readonly string[]): string {
  const values = [value].flat().map((one) => shown(one));
  return `${name} is ${values.join(", ")}, expected: ${expected.join(" or ")}`;
}

function when(name: string, seconds = 0): string {
  const ms = seconds * 1000;
  const isDate = Math.abs(ms) <= longestMs;
  return `${name} is ${isDate ? `${timeText(ms)}, ${relativeText(ms, Date.now())}` : seconds}`;
}

/** A value from outside: a text as it is, another value by its type. */
function shown(value: unknown, missing = "missing"): string {
  if (value === undefined) return missing;
  if (Array.isArray(value)) return "(a list)";
  if (typeof value === "object" && value !== null) return "(an object)";
  return typeof value === "string" && value !== "" ? value : JSON.stringify(value);
}

function headerOf(token: string): JWSHeaderParameters {
  if (token.length > maxTokenBytes) {
    throw new TokenError("ERR_TOKEN_TOO_LARGE", `the token is longer than ${maxTokenBytes} bytes`);
  }
  try {
    decodeJwt(token);
    return decodeProtectedHeader(token);
  } catch {
    throw new TokenError(
      "ERR_TOKEN_MALFORMED",
      "this is not a compact JWT: three base64url parts, the first a JSON header, the second JSON claims",
    );
  }
}
