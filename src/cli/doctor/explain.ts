import type { JWSHeaderParameters } from "jose";
import { decodeJwt } from "jose/jwt/decode";
import { decodeProtectedHeader } from "jose/decode/protected_header";
import { JwksdError, TokenError } from "../../base/errors.ts";
import { createRemoteKeySet } from "../../verify/relying-party/remote-key-set.ts";
import { type Cause, type Expected, diagnose, shown } from "./diagnosis.ts";
import { maxTokenBytes } from "../../verify/token/compact-jws.ts";
import { type VerifyOptions, checkVerifyOptions, verify } from "../../verify/token/verify.ts";

/** One step of a verification, and its result. */
export interface Step {
  readonly step: "token" | "discovery" | "jwks" | "key" | "signature" | "claims";
  readonly ok: boolean;
  readonly detail: string;
  /** Error code of a failed step. */
  readonly code?: string | undefined;
  /** Why, where more is known than the code says. */
  readonly cause?: Cause | undefined;
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

interface ExplainOptions extends Expected {
  /** URL of the JWK Set. Default: that of the discovery document. */
  readonly jwksUri?: string | undefined;
  readonly allowInsecure?: boolean | undefined;
}

/** Errors that `verify` throws only after the signature was verified. */
const aboutClaims: ReadonlySet<string> = new Set(["ERR_TOKEN_CLAIM", "ERR_TOKEN_EXPIRED", "ERR_TOKEN_TYP"]);

/** Algorithms of shared secrets, and of tokens without a signature. */
const withoutKeyPair = /^(HS\d+|none)$/i;

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
  let jwkSet: { readonly keys: readonly ({ kid?: unknown } | null)[] } | undefined;
  const done = (detail: string, cause?: Cause): number => steps.push({ step, ok: true, detail, cause });
  try {
    const header = shownHeader(token);
    const [alg, kid, typ] = [header.alg, header.kid, header.typ].map((value) => shown(value));
    done(`${token.length} bytes, alg ${alg}, kid ${kid}, typ ${typ}`);
    if (withoutKeyPair.test(alg ?? "")) {
      step = "key";
      throw new TokenError("ERR_TOKEN_ALG", `no published key can verify ${alg}`);
    }

    ({ step } = source);
    const { where, body } = await source.load();
    jwkSet = JSON.parse(body) as NonNullable<typeof jwkSet>;
    const { keys } = jwkSet;
    const kids = keys.map((key) => shown(key?.kid, "(no kid)"));
    done(`${where} has ${keys.length === 1 ? "1 key" : `${keys.length} keys`}: ${kids.join(", ")}`);

    step = "key";
    await source.getKey(header);
    const published = `kid ${header.kid} is published, for ${header.alg}`;
    if (keys.some((key) => key?.kid === header.kid)) done(published);
    else done(`${published}; the answer above lacks it, the next one has it`, "next answer");

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
    const { cause, details } = await diagnose(token, error.code, expected, jwkSet);
    const detail = [error.message, ...details].join("; ");
    steps.push({ step, ok: false, detail: `${detail} [${error.code}]`, code: error.code, cause });
    return { verified: false, steps };
  }
}

function shownHeader(token: string): JWSHeaderParameters {
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
