import { FetchError, JwksdError } from "../../base/errors.ts";
import { jsonOf } from "../../base/json.ts";
import { isObject } from "../../doctor/lenient-json.ts";
import type { Failure, HttpExchange, Observations } from "../../doctor/observations.ts";
import { failureText, statusText, wayOf } from "../../doctor/read-exchange.ts";
import { bodyText } from "../../doctor/value-text.ts";

const codeOfFailure = {
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

/**
 * Creates the error for a URL that serves no keys. The message says what the URL is, where the URL came from, and what
 * it returned.
 *
 * @param cause why the set is invalid
 */
export function noKeys({ discovery, set }: Observations, cause: unknown): JwksdError {
  const last = set ?? discovery ?? {};
  const at = last.url === undefined ? "the file" : wayOf(last);
  const from = set === undefined ? "the discovery document" : discovery === undefined ? undefined : "its jwks_uri";
  const where = from === undefined || last.url === undefined ? at : `${at} (${from})`;
  const [code, fault] = faultIn(last, set === undefined);
  if (fault === undefined) return cause instanceof JwksdError ? cause : new FetchError(code, `${where}: not a JWK Set`);
  // Verifiers do not follow redirects, so a redirect takes precedence over its target.
  return new FetchError(last.redirects === undefined ? code : "ERR_FETCH_REDIRECT", `${where}: ${fault}`);
}

function faultIn({ failure, status = 200, body }: HttpExchange, isDiscovery: boolean) {
  if (failure !== undefined) return [codeOfFailure[failure.kind], failureText(failure)] as const;
  if (status !== 200) return ["ERR_FETCH_STATUS", statusText({ status, ...(body && { body }) })] as const;
  const text = new TextDecoder().decode(body);
  const value = jsonOf(text);
  if (value === undefined) return ["ERR_FETCH_BODY", bodyText(text)] as const;
  return [
    "ERR_FETCH_BODY",
    isDiscovery && isObject(value) ? "its jwks_uri is missing or is not a URL" : undefined,
  ] as const;
}
