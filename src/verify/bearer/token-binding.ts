import type { JWTPayload } from "jose";
import { sha256, toBase64url } from "#crypto";
import { fromBase64 } from "../../base/bytes.ts";
import { invalidOption } from "../../base/errors.ts";
import type { Credentials, GuardedRequest } from "./authorization-header.ts";
import { createProofCheck } from "./dpop-proof.ts";
import { invalidToken } from "./refusal.ts";
import type { BearerSettings } from "./settings.ts";

/**
 * Checks that a request's sender holds the key and the certificate that its token is bound to.
 *
 * @throws RefusedRequest
 */
export type Confirm = (claims: JWTPayload, credentials: Credentials, request: GuardedRequest) => Promise<void>;

/**
 * Creates a function that checks a token's bindings (`cnf`). Every known binding must be confirmed. If all of a token's
 * bindings are unknown, the token is rejected instead of being treated as unbound.
 *
 * @see RFC 7800 section 3; RFC 9449 section 7; RFC 8705 section 3
 */
export function createConfirmation(settings: BearerSettings): Confirm {
  const { dpop, certificate } = settings;
  const checkProof = createProofCheck(settings);

  return async ({ cnf }, { scheme, token }, { method, target, proof, source }) => {
    // The claim can be any JSON value.
    const { jkt, "x5t#S256": x5t } = Object(cnf) as { readonly jkt?: unknown; readonly "x5t#S256"?: unknown };
    if (scheme === "DPoP" && typeof jkt !== "string") throw invalidToken("the token is not bound to a key (cnf.jkt)");
    if (cnf === undefined) return;
    if (typeof (jkt ?? x5t) !== "string") throw invalidToken("the token has an unknown binding (cnf)");
    if (jkt !== undefined && scheme !== "DPoP") {
      const remedy =
        dpop === undefined ? ", which is not supported here" : "; send it with the DPoP scheme and a proof";
      throw invalidToken(`the token is bound to a key${remedy}`);
    }
    if (x5t !== undefined && x5t !== (await thumbprintOf(await certificate?.(source))))
      throw invalidToken("the token is bound to a different certificate, or no certificate was presented");
    if (typeof jkt === "string") await checkProof(proof, { method, target, token, jkt });
  };
}

/**
 * Returns a certificate's thumbprint, or `undefined` if there is no certificate.
 *
 * @throws ConfigError `ERR_OPTION_INVALID` if the value is anything else, such as the whole object from
 * `getPeerCertificate()`
 * @see RFC 8705 section 3.1
 */
async function thumbprintOf(certificate: string | Uint8Array | null | undefined): Promise<string | undefined> {
  if (certificate === undefined || certificate === null || certificate.length === 0) return undefined;
  const der = typeof certificate === "string" ? derOf(certificate) : certificate;
  // A certificate in DER is a SEQUENCE.
  if (!(der instanceof Uint8Array) || der[0] !== 0x30)
    throw invalidOption(
      '"certificate" did not return a certificate; return it as DER, as PEM, as PEM with %20 for spaces, or as :base64: (RFC 9440)',
    );
  return toBase64url(await sha256(Uint8Array.from(der)));
}

/** Formats in which programs return certificates, and in which proxies write them into a header. */
const certificateForms = [
  // The first certificate in a PEM. RFC 7468 section 5
  /-----BEGIN CERTIFICATE-----([\s\w+/=]+)-----END CERTIFICATE-----/,
  // RFC 9440 section 2.2
  /^:([\w+/=]+):$/,
];

/** Returns the DER of a certificate, or `undefined` for any other string. */
function derOf(certificate: string): Uint8Array | undefined {
  try {
    // nginx and AWS load balancers escape a PEM.
    const plain = certificate.includes("%") ? decodeURIComponent(certificate) : certificate;
    const base64 = certificateForms.map((form) => form.exec(plain)?.[1]).find((found) => found !== undefined);
    return base64 === undefined ? undefined : fromBase64(base64);
  } catch {
    return undefined;
  }
}
