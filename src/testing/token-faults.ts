import * as base64url from "jose/base64url";
import { exportSPKI } from "jose/key/export";
import type { Bytes } from "../base/bytes.ts";
import type { JwksdErrorCode } from "../base/errors.ts";
import type { TestAlgorithm, TestKey } from "./test-keys.ts";

/** A token's claims. A claim whose value is `undefined` is omitted. */
export type Claims = Readonly<Record<string, unknown>>;

/** A token before it is signed. */
export interface Draft {
  readonly header: Readonly<Record<string, unknown>>;
  readonly claims: Claims;
  readonly sign: (input: Bytes) => Uint8Array | Promise<Uint8Array>;
  /** Changes the signed token. */
  readonly finish?: (token: string) => string;
}

/** Keys that a fault may need. */
export interface FaultKeys {
  /** Key that signs valid tokens. */
  readonly active: TestKey;
  /** Returns a key that is no longer published. */
  readonly removed: () => Promise<TestKey>;
  /** Returns a key that was never published. */
  readonly stranger: () => Promise<TestKey>;
}

interface Fault {
  readonly title: string;
  /** Error code with which `verify` and the guard reject the token. */
  readonly code: JwksdErrorCode;
  change(draft: Draft, keys: FaultKeys, nowSeconds: number): Partial<Draft> | Promise<Partial<Draft>>;
}

const claims = (title: string, code: JwksdErrorCode, change: (now: number) => Claims): Fault => ({
  title,
  code,
  change: ({ claims }, _keys, now) => ({ claims: { ...claims, ...change(now) } }),
});
const header = (title: string, code: JwksdErrorCode, change: object): Fault => ({
  title,
  code,
  change: ({ header }) => ({ header: { ...header, ...change } }),
});
const whole = (title: string, finish: (token: string) => string): Fault => ({
  title,
  code: "ERR_TOKEN_MALFORMED",
  change: () => ({ finish }),
});
const nothing = (): Uint8Array => new Uint8Array();

/** All token faults, keyed by the name that `token` accepts. */
export const tokenFaults = {
  expired: claims("expired an hour ago", "ERR_TOKEN_EXPIRED", (now) => ({ iat: now - 3_900, exp: now - 3_600 })),
  notYetValid: claims("not valid for another hour", "ERR_TOKEN_CLAIM", (now) => ({
    nbf: now + 3_600,
    exp: now + 7_200,
  })),
  missingExp: claims("no exp", "ERR_TOKEN_CLAIM", () => ({ exp: undefined })),
  wrongAudience: claims("for another API", "ERR_TOKEN_CLAIM", () => ({ aud: "https://other.example" })),
  wrongIssuer: claims("from another issuer", "ERR_TOKEN_CLAIM", () => ({ iss: "https://evil.example" })),
  tooLarge: claims("longer than 16 KiB", "ERR_TOKEN_TOO_LARGE", () => ({ padding: "x".repeat(16_384) })),
  wrongTyp: header("a logout token", "ERR_TOKEN_TYP", { typ: "logout+jwt" }),
  noKid: header("no kid", "ERR_TOKEN_KID_MISSING", { kid: undefined }),
  unknownKid: header("an unpublished kid, even though the token's key is published", "ERR_TOKEN_KID_UNKNOWN", {
    kid: "unknown",
  }),
  critical: header("an unknown critical header parameter", "ERR_TOKEN_CRIT", { crit: ["x"], x: 1 }),
  algNone: {
    title: "alg none",
    code: "ERR_TOKEN_ALG",
    change: ({ header }) => ({ header: { ...header, alg: "none" }, sign: nothing }),
  },
  hs256: {
    title: "HS256, with the public key as the secret",
    code: "ERR_TOKEN_ALG",
    change: async ({ header }, { active }) => {
      const secret = new TextEncoder().encode(await exportSPKI(active.publicKey));
      const key = await crypto.subtle.importKey("raw", secret, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
      const sign = async (input: Bytes): Promise<Uint8Array> =>
        new Uint8Array(await crypto.subtle.sign("HMAC", key, input));
      return { header: { ...header, alg: "HS256" }, sign };
    },
  },
  removedKey: {
    title: "signed with a key that is no longer published",
    code: "ERR_TOKEN_KID_UNKNOWN",
    change: async ({ header }, { removed }) => {
      const { kid, sign } = await removed();
      return { header: { ...header, kid }, sign };
    },
  },
  wrongSignature: {
    title: "signed with a different key under the right kid",
    code: "ERR_TOKEN_SIGNATURE",
    change: async (_draft, { stranger }) => ({ sign: (await stranger()).sign }),
  },
  embeddedKey: {
    title: "signed with a key embedded in the token",
    code: "ERR_TOKEN_SIGNATURE",
    change: async ({ header }, { stranger }) => {
      const { jwk, sign } = await stranger();
      return { header: { ...header, jwk }, sign };
    },
  },
  unsigned: { title: "without a signature", code: "ERR_TOKEN_SIGNATURE", change: () => ({ sign: nothing }) },
  tampered: {
    title: "a claim changed after signing",
    code: "ERR_TOKEN_SIGNATURE",
    change: ({ claims }) => ({
      finish: (token) =>
        token.replace(/\.[^.]+/, `.${base64url.encode(JSON.stringify({ ...claims, sub: "mallory" }))}`),
    }),
  },
  opaque: whole("not a JWT", () => "0123456789abcdef"),
  encrypted: whole("five parts, like an encrypted token", (token) => `${token}.AAAA.AAAA`),
} as const satisfies Readonly<Record<string, Fault>>;

/** Name of a token fault. */
export type TokenFault = keyof typeof tokenFaults;

/** Changes to a token: faults, algorithm and header. */
export interface TestTokenOptions extends Readonly<Partial<Record<TokenFault, boolean>>> {
  /** Algorithm of the key that signs the token. Default: the issuer's first algorithm. */
  readonly alg?: TestAlgorithm | undefined;
  /**
   * Header members to add or replace. A value of `undefined` omits a member. Default: `alg`, `kid` and `typ: "at+jwt"`.
   */
  readonly header?: Readonly<Record<string, unknown>> | undefined;
}

/** Creates the token that a draft describes. @see RFC 7515 section 7.1 */
export async function tokenOf({ header, claims, sign, finish = (token) => token }: Draft): Promise<string> {
  const input = [header, claims].map((part) => base64url.encode(JSON.stringify(part))).join(".");
  return finish(`${input}.${base64url.encode(await sign(new TextEncoder().encode(input)))}`);
}
