import { FetchError, JwksdError } from "../../base/errors.ts";
import { jsonOf } from "../../base/json.ts";
import { isObject } from "../../doctor/document.ts";
import { failureText, statusText, wayOf } from "../../doctor/exchange.ts";
import { bodyText } from "../../doctor/format.ts";
import type { Exchange, Failure, Observations } from "../../doctor/index.ts";

const codeOf = {
  "forbidden-url": "ERR_URL_INSECURE",
  "forbidden-address": "ERR_ADDRESS_FORBIDDEN",
  unreachable: "ERR_FETCH_FAILED",
  tls: "ERR_FETCH_FAILED",
  timeout: "ERR_FETCH_TIMEOUT",
  "too-large": "ERR_FETCH_TOO_LARGE",
  redirects: "ERR_FETCH_REDIRECT",
  limit: "ERR_FETCH_TIMEOUT",
  protocol: "ERR_FETCH_FAILED",
  incomplete: "ERR_FETCH_BODY",
} as const satisfies Readonly<Record<Failure["kind"], string>>;

/** Why the keys could not be had: which URL was asked, where that is from, and what it answered. @param cause why the set is none */
export function noKeys({ discovery, set }: Observations, cause: unknown): JwksdError {
  const asked = set ?? discovery ?? {};
  const at = asked.url === undefined ? "the file" : wayOf(asked);
  const from = set === undefined ? "the discovery document" : discovery === undefined ? undefined : "its jwks_uri";
  const where = from === undefined || asked.url === undefined ? at : `${at} (${from})`;
  const [code, what] = faultOf(asked, set === undefined);
  if (what === undefined)
    return cause instanceof JwksdError ? cause : new FetchError(code, `${where}: it is no JWK Set`);
  // Verifiers do not follow redirects, so what is at the end of one says why it is there.
  return new FetchError(asked.redirects === undefined ? code : "ERR_FETCH_REDIRECT", `${where}: ${what}`);
}

function faultOf({ failure, status = 200, body }: Exchange, isDiscovery: boolean) {
  if (failure !== undefined) return [codeOf[failure.kind], failureText(failure)] as const;
  if (status !== 200) return ["ERR_FETCH_STATUS", statusText({ status, ...(body && { body }) })] as const;
  const text = new TextDecoder().decode(body);
  const value = jsonOf(text);
  if (value === undefined) return ["ERR_FETCH_BODY", bodyText(text)] as const;
  return ["ERR_FETCH_BODY", isDiscovery && isObject(value) ? "it has no jwks_uri that is a URL" : undefined] as const;
}
