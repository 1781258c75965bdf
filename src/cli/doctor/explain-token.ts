import { decodeJwt } from "jose/jwt/decode";
import { TokenError } from "../../base/errors.ts";
import { jsonOf } from "../../base/json.ts";
import { lifetimeOf } from "../../doctor/cache-lifetime.ts";
import type { Observations } from "../../doctor/index.ts";
import { isObject } from "../../doctor/lenient-json.ts";
import { field, setResponse, wayOf } from "../../doctor/read-exchange.ts";
import { publicKeyAlgorithms } from "../../keys/crypto/algorithms.ts";
import { type VerificationKeys, verificationKeys } from "../../keys/jwk/verification-keys.ts";
import { noKeys } from "./no-keys-error.ts";
import { adviceFor, doctorCommandFor } from "./verification-advice.ts";
import { type Explanation, explain } from "./verification-steps.ts";

/** Verifies a token with the observed keys, accepting any audience. Explains each step and gives advice. */
export async function explainToken(
  token: string,
  observations: Observations,
  { target, allowInsecure }: { readonly target: string; readonly allowInsecure: boolean | undefined },
): Promise<Explanation & { readonly advice: string | undefined }> {
  const explanation = await explained(token, observations);
  const set = setResponse(observations);
  const keptSeconds = set && lifetimeOf(set).servedSeconds;
  const doctor = doctorCommandFor(target, allowInsecure);
  return { ...explanation, advice: adviceFor(explanation, { issuer: target, doctor, isDoctor: true, keptSeconds }) };
}

async function explained(token: string, observations: Observations): Promise<Explanation> {
  const issuer = issuerOf(observations) ?? issuerIn(token) ?? "(an issuer)";
  const response = setResponse(observations);
  const body = response?.body === undefined ? undefined : new TextDecoder().decode(response.body);
  let keys: VerificationKeys | undefined;
  let cause: unknown;
  try {
    if (body !== undefined) keys = await verificationKeys(jsonOf(body));
  } catch (error) {
    cause = error;
  }
  return explain(
    token,
    { issuer, algorithms: publicKeyAlgorithms },
    {
      step: "jwks",
      load: async () => {
        if (response === undefined || body === undefined || keys === undefined) throw noKeys(observations, cause);
        const where = response.url === undefined ? "the file" : wayOf(response);
        return { where, body, age: field(response, "age") };
      },
      getKey: async ({ kid, alg = "" }) => {
        if (kid === undefined) throw new TokenError("ERR_TOKEN_KID_MISSING", "its header has no kid");
        const key = await keys?.find(kid, alg);
        if (key !== undefined) return key;
        throw new TokenError(
          "ERR_TOKEN_KID_UNKNOWN",
          "the token's kid does not match any of the provider's usable keys",
        );
      },
    },
  );
}

/** Returns the expected issuer: the one that the discovery document names or, if it names none, the observed URL. */
function issuerOf({ discovery, issuer }: Observations): string | undefined {
  const document = discovery?.body === undefined ? undefined : jsonOf(new TextDecoder().decode(discovery.body));
  const named = isObject(document) ? document["issuer"] : undefined;
  return typeof named === "string" && named !== "" ? named : issuer;
}

function issuerIn(token: string): string | undefined {
  try {
    return decodeJwt(token).iss;
  } catch {
    return undefined;
  }
}
