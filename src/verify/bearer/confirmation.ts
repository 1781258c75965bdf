import { sha256, toBase64url } from "#crypto";
import type { JWTPayload } from "jose";
import { fromBase64 } from "../../base/bytes.ts";
import { invalidOption } from "../../base/errors.ts";
import type { Credentials } from "./authorization.ts";
import { createProofCheck } from "./dpop-proof.ts";
import type { BearerSettings } from "./settings.ts";
import { type Refusal, invalidToken } from "./refusal.ts";
import type { GuardedRequest } from "./authorization.ts";

/**
 * Makes the check that the sender of a token has what the token is bound to (`cnf`). Every binding that is known must hold, and a token
 * with none that is known is refused, not taken as an unbound one.
 *
 * @see RFC 7800 section 3; RFC 9449 section 7; RFC 8705 section 3
 */
export function createConfirmation(settings: BearerSettings) {
  const { dpop, certificate } = settings;
  const checkProof = createProofCheck(settings);

  return async (
    { cnf }: JWTPayload,
    { scheme, token }: Credentials,
    { method, target, proof, source }: GuardedRequest,
  ): Promise<Refusal | undefined> => {
    const { jkt, "x5t#S256": x5t } = Object(cnf) as { readonly jkt?: unknown; readonly "x5t#S256"?: unknown };
    if (scheme === "DPoP" && typeof jkt !== "string") return invalidToken("the token is not bound to a key (cnf.jkt)");
    if (cnf === undefined) return undefined;
    if (typeof (jkt ?? x5t) !== "string")
      return invalidToken("the token is bound in a way that is not known here (cnf)");
    if (jkt !== undefined && scheme !== "DPoP") {
      const remedy = dpop === undefined ? "which is not supported here" : "so send it as DPoP, with a proof";
      return invalidToken(`the token is bound to a key, ${remedy}`);
    }
    if (x5t !== undefined && x5t !== (await thumbprint(await certificate?.(source as never))))
      return invalidToken("the token is bound to another certificate, or none was presented");
    return jkt === undefined ? undefined : checkProof(proof, { method, target, token, jkt: jkt as string });
  };
}

/**
 * `undefined` where there is no certificate.
 *
 * @throws ConfigError `ERR_OPTION_INVALID` for anything else, such as the whole object of `getPeerCertificate()`
 * @see RFC 8705 section 3.1
 */
async function thumbprint(certificate: string | Uint8Array | null | undefined): Promise<string | undefined> {
  if (certificate === undefined || certificate === null || certificate.length === 0) return undefined;
  const der = typeof certificate === "string" ? derOf(certificate) : certificate;
  // DER of a certificate is a SEQUENCE.
  if (!(der instanceof Uint8Array) || der[0] !== 0x30)
    throw invalidOption(
      '"certificate" gave no certificate as DER, PEM, PEM with %20 for spaces, or :base64: of RFC 9440',
    );
  return toBase64url(await sha256(Uint8Array.from(der)));
}

/** As programs give certificates, and as proxies write them into a header field. */
const forms = [
  // The first one of a PEM. RFC 7468 section 5
  /-----BEGIN CERTIFICATE-----([\s\w+/=]+)-----END CERTIFICATE-----/,
  // RFC 9440 section 2.2
  /^:([\w+/=]+):$/,
];

/** `undefined` for what is no certificate. */
function derOf(text: string): Uint8Array | undefined {
  try {
    // nginx and the load balancer of AWS escape a PEM.
    const plain = text.includes("%") ? decodeURIComponent(text) : text;
    const base64 = forms.map((form) => form.exec(plain)?.[1]).find((found) => found !== undefined);
    return base64 === undefined ? undefined : fromBase64(base64);
  } catch {
    return undefined;
  }
}
