import type { JWTPayload } from "jose";
import { decodeJwt } from "jose/jwt/decode";
import { publicKeyAlgorithms } from "../../keys/crypto/algorithms.ts";
import { setResponse } from "../../doctor/exchange.ts";
import type { Observations } from "../../doctor/index.ts";
import { FetchError, TokenError } from "../../base/errors.ts";
import { jsonOf } from "../../base/json.ts";
import { verificationKeys } from "../../keys/jwk/verification-keys.ts";
import { type Explanation, explain } from "./explain.ts";

/** The expected audience of a token that has none. */
const nobody = "(the audience of this token)";

/** Verifies a token with the observed keys, for any audience, and explains each step. */
export async function explainToken(token: string, observations: Observations): Promise<Explanation> {
  const claims = claimsOf(token);
  const audiences = [claims.aud].flat().filter((aud): aud is string => typeof aud === "string" && aud !== "");
  const expected = {
    issuer: issuerOf(observations) ?? claims.iss ?? "(an issuer)",
    audience: audiences.length === 0 ? [nobody] : audiences,
    algorithms: publicKeyAlgorithms,
  };
  const response = setResponse(observations);
  const body = response?.body === undefined ? undefined : new TextDecoder().decode(response.body);
  const keys = body === undefined ? undefined : await verificationKeys(jsonOf(body)).catch(() => undefined);
  return explain(token, expected, {
    step: "jwks",
    load: async () => {
      if (body === undefined || keys === undefined) throw new FetchError("ERR_FETCH_BODY", "there is no JWK Set");
      return { where: response?.url ?? "the file", body };
    },
    getKey: async ({ kid, alg = "" }) => {
      if (kid === undefined) throw new TokenError("ERR_TOKEN_KID_MISSING", "its header has no kid");
      const key = await keys?.find(kid, alg);
      if (key !== undefined) return key;
      throw new TokenError("ERR_TOKEN_KID_UNKNOWN", "the kid of the token names no usable key of the provider");
    },
  });
}

/** The expected issuer: that of the discovery document, else the observed URL. */
function issuerOf({ discovery, issuer }: Observations): string | undefined {
  const document = discovery?.body === undefined ? undefined : jsonOf(new TextDecoder().decode(discovery.body));
  const said = (document as { issuer?: unknown } | null | undefined)?.issuer;
  return typeof said === "string" && said !== "" ? said : issuer;
}

function claimsOf(token: string): Partial<JWTPayload> {
  try {
    return decodeJwt(token);
  } catch {
    return {};
  }
}
