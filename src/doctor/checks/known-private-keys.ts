import { integer } from "../base64url.ts";
import type { Key } from "../decode-key.ts";
import { type Note, note } from "../finding.ts";

/**
 * Sources of published private keys, keyed by RFC 7638 thumbprint. CVE-2008-0166 affects too many keys for this list,
 * but `--blocklist` accepts the lists in Debian's `openssl-blacklist` package.
 */
const known: Readonly<Record<string, string>> = {
  "c_0UpWcyUnvQC91D5ATbWIM9seRg94CqJ40pdgiNm-o": "RFC 6605",
  eD0PULZNVbjzVUEYhTXrPIGeIfttetyz2TinbRRrDh8: "RFC 6605",
  "DOvxvJiAdIqVWIkFt5hDtCunXLF0BV4-JGv4f-ALSm0": "RFC 6979",
  YEV1EIv9vYLGY_GThCEOLkeymqP0eeXUU7MmlJhqgGA: "RFC 6979",
  "l2tfkSzhekdOr24I18E1O_-49AlK14MTo7OxJMS7-HI": "RFC 6979",
  "oKIywvGUpTVTyxMQ3bwIIeQUudfr_CkLMjCE19ECD-U": "RFC 7515",
  "u5YUSjQ2-2chBi51NSk3t3g7IM4o2KYcnPqPtCNGd3U": "RFC 7515",
  "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs": "RFC 7517",
  "9jg46WB3rR_AHD-EBXdN7cBkH1WOu0tA3M9fm21mqTI": "RFC 7520",
  "Rt-IyDEhXohvTl_ozKQ9YGflXGuDb3uu3QmqN2LoMwM": "RFC 7520",
  "YlKlB7M2wnS0cPn_V7OW-FuDLuWdJ9z4OvPHmhGDfeE": "RFC 7520",
  "dHri3SADZkrush5HU_50AoRhcKFryN-PI6jPBtPL55M": "RFC 7520",
  kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k: "RFC 8037",
  N_IRqpXbColOXawKcNKmvXX4Ty8KUGn8g1T7tKkQ0w4: "RFC 8080",
  "W0WNegPYjImHD-oRifTF8dwTUEDqSCNtqhZu8v9o30k": "RFC 8080",
  "3YZxBJ12jO3n_mXt_q-j_Z-TFP1vt-NiI3OCf-fEnHQ": "RFC 8410",
  "DelSDncZw4S1N8q-4NaDVOC82MYtGMGvvBFHFN8qG3M": "RFC 8696",
  "7kAUHrvMcGQb8LZmc8vkF6erQ3LmA1ULBaD_mFkOMCs": "RFC 9216",
  BXqw70fsE5fIP5tLHeTMQtlxaF3lEJOjRf2aLHx4Rao: "RFC 9216",
  Fa5JHFzFB8yHv0Dk3rGTgtCQPXPr3q8midyfylf8CUU: "RFC 9500",
  "LIstkoCvByn4jk8oZPvigQkzTzO9UwnGnE-VMlkZvYQ": "RFC 9500",
  TLOWIUBG7ALE2U13WMeEAErmpD48gp8MllKbX_zBARE: "RFC 9500",
  "u88se-xodYvJqpVtfxKIhE6bv2S6Z9hy1ikqIcPciAE": "RFC 9500",
  uG5zwmkbOsp4CWXAXpcCwS_BBebz0EP871Y1aRTdY9E: "RFC 9500",
  NIYMyBjsDjyBC9P537D6ITzkpD8NtRji9yapEzC66mQ: "RFC 9635",
  YVRoCOFWVasLHl42xxw9VITH3RUD7Q8GV6b98ug_qA8: "a generator with CVE-2008-0166",
  "19J8y7Zprt2-QKLjF2I5pVk0OELX6cY2AfaAv1LC_w8": "the ES256 sample on jwt.io",
  oGDmHqCJ7yzMkWEkrlZVHkvrHIyQwtlDmeq5ForUHeY: "the RS256 sample on jwt.io",
  r1LkbBo3925Rb2ZFFrKyU3MVex9T2817Kx0vbi6i_Kc: "oidc-provider's development keystore",
};

/** Checks that the private key has not been published. */
export async function checkKnown(key: Key, blocklist: ReadonlySet<string>): Promise<Note[]> {
  const { name, thumbprint } = key;
  if (thumbprint === undefined) return [];
  const source = Object.hasOwn(known, thumbprint) ? known[thumbprint] : undefined;
  if (source !== undefined) return [note("JWKS_KEY_KNOWN", `${name} is from ${source}`)];
  if (blocklist.size === 0) return [];
  const isListed = blocklist.has(thumbprint) || blocklist.has((await debianDigest(key)) ?? thumbprint);
  return isListed ? [note("JWKS_KEY_KNOWN", `${name} is on the blocklist`)] : [];
}

/**
 * Returns an RSA key's entry in `openssl-blacklist`: the last 20 digits of the SHA-1 of what
 * `openssl rsa -modulus` prints.
 */
async function debianDigest({ jwk, values }: Key): Promise<string | undefined> {
  const bytes = values["n"]?.bytes;
  if (jwk["kty"] !== "RSA" || bytes === undefined) return undefined;
  const line = `Modulus=${hex(integer(bytes)).toUpperCase()}\n`;
  const digest = await crypto.subtle.digest("SHA-1", new TextEncoder().encode(line));
  return hex(integer(new Uint8Array(digest))).slice(-20);
}

const hex = (value: bigint): string => value.toString(16);
