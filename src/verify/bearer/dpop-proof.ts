import type { JWTPayload } from "jose";
import { calculateJwkThumbprint } from "jose/jwk/thumbprint";
import { targetPath } from "../../base/urls.ts";
import { publicKeyAlgorithms } from "../../keys/crypto/algorithms.ts";
import { textHash } from "../../keys/crypto/text-sha256.ts";
import { verificationKeysOnDemand } from "../../keys/jwk/verification-keys.ts";
import { memoryReplayStore } from "../client/replay-store.ts";
import { readClaims, readHeader } from "../token/compact-jws.ts";
import { checkTyp } from "../token/typ-header.ts";
import { checkSignature } from "../token/verify.ts";
import { createNonces } from "./dpop-nonces.ts";
import { RefusedRequest, invalidProof } from "./refusal.ts";
import type { BearerSettings } from "./settings.ts";

/** The values that a proof must match. */
export interface Proven {
  readonly method: string;
  /** Request target: the path and the query. */
  readonly target: string;
  readonly token: string;
  /** Thumbprint of the key that the token is bound to. */
  readonly jkt: string;
}

/** Creates a function that checks DPoP proofs and throws RefusedRequest. @see RFC 9449 section 4.3 */
export function createProofCheck(settings: BearerSettings) {
  const { baseUrl = "", proofMaxAgeSeconds, nonceSecret, clock, aheadSeconds, verification } = settings;
  const { replay = memoryReplayStore({ clock }) } = settings;
  const nonces = nonceSecret === undefined ? undefined : createNonces(nonceSecret, clock);
  const { clockToleranceSeconds } = verification;

  return async (proof: string | undefined, proven: Proven): Promise<void> => {
    if (proof === undefined) throw invalidProof("the DPoP header is missing");
    const { claims, jkt } = await readProof(proof);
    const nowSeconds = Math.floor(clock.now() / 1000);
    const age = nowSeconds - (typeof claims.iat === "number" ? claims.iat : Number.NaN);
    const rules: readonly (readonly [isBroken: boolean, problem: string])[] = [
      [typeof claims.jti !== "string" || claims.jti === "", "the proof has no jti"],
      [claims["htm"] !== proven.method, "the proof's htm does not match the request method"],
      [
        !isSameUrl(claims["htu"], baseUrl + targetPath(proven.target)),
        "the proof's htu does not match the request URL",
      ],
      [!(age <= proofMaxAgeSeconds + clockToleranceSeconds), "the proof is too old (iat)"],
      [!(age >= -aheadSeconds), "the proof's iat is in the future"],
      [claims["ath"] !== (await textHash(proven.token)), "the proof's ath does not match the token's hash"],
      [jkt !== proven.jkt, "the token is bound to a different key, not to the proof's key"],
    ];
    const broken = rules.find(([isBroken]) => isBroken);
    if (broken !== undefined) throw invalidProof(broken[1]);
    if (nonces !== undefined && !(await nonces.accepts(claims["nonce"]))) {
      const description = "the proof needs the nonce from the DPoP-Nonce header";
      throw new RefusedRequest({ status: 401, error: "use_dpop_nonce", description, nonce: await nonces.current() });
    }
    // Done last, so that a rejected proof does not count as used.
    const expiresAt = Math.ceil(nowSeconds - age + proofMaxAgeSeconds + clockToleranceSeconds + 1) * 1000;
    const isNew = await replay(await textHash(JSON.stringify([jkt, claims.jti])), expiresAt, jkt);
    if (!isNew) throw invalidProof("the proof has already been used (jti)");
    // If the proof expired while the store was called, the store may have forgotten its first use.
    if (clock.now() >= expiresAt) throw invalidProof("the proof is too old (iat)");
  };
}

/**
 * Returns a proof's claims and its key's thumbprint. Treats every error as the client's fault.
 *
 * @throws RefusedRequest
 */
async function readProof(proof: string): Promise<{ readonly claims: JWTPayload; readonly jkt: string }> {
  try {
    const header = readHeader(proof, publicKeyAlgorithms);
    checkTyp(header, { typ: "dpop+jwt" });
    const { jwk = {}, alg } = header;
    // The lookup rejects private members, expensive sizes, and types that do not fit the alg.
    const key = await verificationKeysOnDemand({ keys: [{ ...jwk, kid: "proof" }] }).find("proof", alg);
    if (key === undefined) throw new Error("the jwk is not a usable key");
    await checkSignature(proof, alg, key);
    return { claims: readClaims(proof), jkt: await calculateJwkThumbprint(jwk) };
  } catch {
    throw invalidProof("the proof is not a single JWT with typ dpop+jwt that is signed with its own jwk");
  }
}

/**
 * Reports whether two URLs are the same after normalization, apart from the query and fragment.
 *
 * @see RFC 9449 section 4.3, points 9 and 10; RFC 3986 section 6.2
 */
function isSameUrl(htu: unknown, url: string): boolean {
  return typeof htu === "string" && URL.canParse(htu) && URL.canParse(url) && normalized(htu) === normalized(url);
}

function normalized(url: string): string {
  const { origin, pathname } = new URL(url);
  return (
    origin +
    pathname.replace(/%[\da-f]{2}/gi, (escape) => {
      const character = String.fromCharCode(Number.parseInt(escape.slice(1), 16));
      return /[\w.~-]/.test(character) ? character : escape.toUpperCase();
    })
  );
}
