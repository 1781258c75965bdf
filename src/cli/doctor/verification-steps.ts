import type { JWSHeaderParameters, JWTPayload } from "jose";
import { decodeProtectedHeader } from "jose/decode/protected_header";
import { ageSeconds } from "../../base/cache-control.ts";
import { JwksdError, TokenError } from "../../base/errors.ts";
import { jsonOf } from "../../base/json.ts";
import { entriesIn, isObject } from "../../doctor/lenient-json.ts";
import { createRemoteKeySet } from "../../verify/relying-party/remote-key-set.ts";
import { isCompactJws, maxTokenBytes, readClaims, readHeader } from "../../verify/token/compact-jws.ts";
import { type VerifyOptions, checkVerifyOptions, verifyRead } from "../../verify/token/verify.ts";
import { type Expected, type UsedSet, diagnose, valueText } from "./refusal-cause.ts";
import type { Cause } from "./verification-advice.ts";

/** One step of a verification, and its result. */
export interface Step {
  readonly step: "token" | "discovery" | "jwks" | "key" | "signature" | "claims";
  readonly ok: boolean;
  readonly detail: string;
  /** Error code of a failed step. */
  readonly code?: string | undefined;
  /** Cause of the failure, or of a possible failure elsewhere. */
  readonly cause?: Cause | undefined;
}

/** The result of a verification. */
export interface Explanation {
  readonly verified: boolean;
  readonly steps: readonly Step[];
}

/** A set that was fetched. */
interface LoadedSet {
  readonly where: string;
  readonly body: string;
  /** `Age` header of its response. */
  readonly age: string | undefined;
}

/** Source of the keys for a verification. */
interface KeySource {
  /** Step in which the set is fetched. */
  readonly step: "discovery" | "jwks";
  readonly load: () => Promise<LoadedSet>;
  readonly getKey: VerifyOptions["keys"];
}

interface ExplainOptions extends Expected {
  /** URL of the JWK Set. Default: the `jwks_uri` of the discovery document. */
  readonly jwksUri?: string | undefined;
  readonly allowInsecure?: boolean | undefined;
}

/** Errors that verification throws only after the signature has been found valid. */
const aboutClaims: ReadonlySet<string> = new Set(["ERR_TOKEN_CLAIM", "ERR_TOKEN_EXPIRED", "ERR_TOKEN_TYP"]);

/** Algorithms for shared secrets and for tokens without a signature. */
const withoutKeyPair = /^(HS\d+|none)$/i;

const validSignature: Step = { step: "signature", ok: true, detail: "verifies with the published key" };

/** Placeholder for a token's missing `aud` if any audience is accepted. */
const anyAudience = "any audience";

/**
 * Verifies a token as a relying party does, and reports each step up to the first failure.
 *
 * @throws ConfigError `ERR_OPTION_INVALID`, FetchError `ERR_URL_INSECURE` for invalid options
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
      getKey: keySet,
      async load() {
        await keySet.refresh();
        const { jwksUri = "", body = '{"keys":[]}', headers } = keySet.state() ?? {};
        return { where: jwksUri, body, age: headers?.age };
      },
    });
  } finally {
    keySet.close();
  }
}

/** Works like {@link explainVerification}, but with keys from any source. @throws ConfigError `ERR_OPTION_INVALID` */
export async function explain(token: string, expected: Expected, source: KeySource): Promise<Explanation> {
  const steps: Step[] = [];
  const given = checkVerifyOptions({ ...expected, audience: expected.audience ?? anyAudience, keys: source.getKey });
  let { audience = [anyAudience] } = expected;
  let step: Step["step"] = "token";
  let used: UsedSet | undefined;
  const done = (detail: string, cause?: Cause): number => steps.push({ step, ok: true, detail, cause });
  try {
    const { header, claims } = readToken(token);
    const [alg, kid, typ] = [header.alg, header.kid, header.typ].map((value) => valueText(value));
    done(`${token.length} bytes, alg ${alg}, kid ${kid}, typ ${typ}`);
    if (withoutKeyPair.test(alg ?? "")) {
      step = "key";
      throw new TokenError("ERR_TOKEN_ALG", `a token with alg ${alg} cannot be verified with a published key`);
    }

    ({ step } = source);
    const { where, body, age } = await source.load();
    const jwkSet = jsonOf(body);
    used = { jwkSet, ageSeconds: ageSeconds(age) };
    const kids = (entriesIn(jwkSet) ?? []).map((entry) => (isObject(entry) ? entry["kid"] : undefined));
    const names = kids.map((each) => valueText(each, "(no kid)")).join(", ");
    done(`${where} has ${kids.length === 1 ? "1 key" : `${kids.length} keys`}: ${names}`);

    step = "key";
    await source.getKey(header);
    const published = `kid ${header.kid} is published for ${header.alg}`;
    if (kids.includes(header.kid)) done(published);
    else done(`${published}; it was missing from the response above, but the next response has it`, "next answer");

    step = "claims";
    const isForAny = expected.audience === undefined;
    if (isForAny && claims.aud !== undefined) audience = [claims.aud].flat().filter(isText);
    await verifyRead(
      {
        token,
        header: readHeader(token, given.algorithms),
        claims: () => (isForAny ? { aud: anyAudience, ...claims } : claims),
      },
      { ...given, audience },
    );
    steps.push(validSignature);
    const audiences = [claims.aud].flat().map((aud) => valueText(aud));
    const secondsLeft = Math.round((claims.exp ?? 0) - Date.now() / 1000);
    done(
      `iss ${claims.iss}, aud ${audiences.join(", ")}, expires in ${secondsLeft} s`,
      claims.aud === undefined ? "no audience" : undefined,
    );
    return { verified: true, steps };
  } catch (error) {
    if (!(error instanceof JwksdError)) throw error;
    if (step === "claims") {
      if (aboutClaims.has(error.code)) steps.push(validSignature);
      else step = "signature";
    }
    const { cause, details } = await diagnose(token, error.code, { ...expected, audience }, used);
    const detail = [error.message, ...details].join("; ");
    steps.push({ step, ok: false, detail: `${detail} [${error.code}]`, code: error.code, cause });
    return { verified: false, steps };
  }
}

const isText = (value: unknown): value is string => typeof value === "string" && value !== "";

/** Reads a token as strictly as verifiers do, except for its `alg`. */
function readToken(token: string): { readonly header: JWSHeaderParameters; readonly claims: JWTPayload } {
  if (token.length > maxTokenBytes) {
    throw new TokenError("ERR_TOKEN_TOO_LARGE", `the token is longer than ${maxTokenBytes} bytes`);
  }
  try {
    if (isCompactJws(token)) return { header: decodeProtectedHeader(token), claims: readClaims(token) };
  } catch {
    // The token's parts are not JSON.
  }
  throw new TokenError(
    "ERR_TOKEN_MALFORMED",
    "this is not a compact JWT, which has three base64url parts: a JSON header, JSON claims and a signature",
  );
}
