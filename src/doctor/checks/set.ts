import { isForEncryption, isForSignatures } from "../algorithms.ts";
import { type Note, note } from "../finding.ts";
import type { Key } from "../key.ts";
import { counted } from "../format.ts";

/** More keys than an issuer needs. */
const manyKeys = 100;

/** Checks the entries of a set together. */
export function checkSet(keys: readonly Key[], count: number, at: number): Note[] {
  const looked = keys.length < count ? `, of which ${keys.length.toLocaleString("en")} were looked at` : "";
  const many = count > manyKeys ? [note("JWKS_KEYS_MANY", `${counted(count, "key")}${looked}`)] : [];
  return [...many, ...checkKids(keys), ...checkConfusable(keys), ...checkTwins(keys), ...checkAge(keys, at)];
}

/**
 * Finds a set by which nothing can be verified.
 *
 * @param count of entries, which may be no keys
 * @param isOfIssuer whether it is at the `jwks_uri` of an issuer, and so no bundle of SPIFFE
 */
export function checkPurpose(keys: readonly Key[], count: number, isOfIssuer: boolean): Note[] {
  const isOfUse = keys.some(({ jwk, thumbprint }) => {
    const { use } = jwk;
    if (use === "x509-svid") return true;
    const isMeant = use === undefined || use === "sig" || (use === "jwt-svid" && !isOfIssuer);
    return isMeant && isForSignatures(jwk) && thumbprint !== undefined;
  });
  if (count === 0 || isOfUse) return [];
  const encrypting = keys.filter(({ jwk }) => isForEncryption(jwk)).length;
  const others = encrypting === count ? "" : "; the other findings say why no other key can be used";
  return [note("JWKS_NO_SIGNING_KEY", `${counted(count, "key")}, ${encrypting} of them for encryption${others}`)];
}

function checkKids(keys: readonly Key[]): Note[] {
  return keys.flatMap(({ jwk, name }) => {
    const { kid, use } = jwk;
    if (kid !== undefined && typeof kid !== "string") return [note("JWKS_KID_TYPE", name)];
    if (kid === "") return [note("JWKS_KID_EMPTY", name)];
    if (kid !== undefined) return kid === kid.trim() ? [] : [note("JWKS_KID_WHITESPACE", name)];
    // A bundle of SPIFFE has authorities of certificates, which no kid names; each key of its tokens has one.
    if (use === "x509-svid") return [];
    const isNeeded = use === "jwt-svid" || keys.length > 1;
    return [note(isNeeded ? "JWKS_KID_MISSING" : "JWKS_ONE_KEY_NO_KID", name)];
  });
}

/** Kids that a reader, or software that trims, folds or normalizes, takes for the same. */
function checkConfusable(keys: readonly Key[]): Note[] {
  const byForm = Map.groupBy(
    keys.filter(({ jwk }) => typeof jwk["kid"] === "string"),
    ({ jwk }) => (jwk["kid"] as string).normalize("NFKC").replaceAll(/\s/g, "").toLowerCase(),
  );
  return [...byForm.values()].flatMap(([first, ...others]) =>
    others
      .filter(({ jwk }) => jwk["kid"] !== first?.jwk["kid"])
      .map(({ name }) => note("JWKS_KID_CONFUSABLE", `${first?.name} and ${name}`)),
  );
}

function checkTwins(keys: readonly Key[]): Note[] {
  const notes: Note[] = [];
  const byKid = new Map<string, Key>();
  const byThumbprint = new Map<string, Key>();
  for (const key of keys) {
    const { jwk, name, thumbprint } = key;
    const { kid, alg } = jwk;
    const namesake = typeof kid === "string" ? byKid.get(kid) : undefined;
    if (namesake !== undefined && namesake.thumbprint !== thumbprint) {
      notes.push(note("JWKS_KID_DUPLICATE", `${namesake.name} and ${name}`));
    }
    const twin = thumbprint === undefined ? undefined : byThumbprint.get(thumbprint);
    const both = `${twin?.name} and ${name}`;
    if (twin !== undefined && twin.jwk["kid"] !== kid) notes.push(note("JWKS_KEY_TWO_KIDS", both));
    // A key may be listed once for each algorithm.
    else if (twin !== undefined && twin.jwk["alg"] === alg) notes.push(note("JWKS_KEY_TWICE", both));
    if (typeof kid === "string") byKid.set(kid, key);
    if (thumbprint !== undefined) byThumbprint.set(thumbprint, key);
  }
  return notes;
}

const yearMs = 365 * 24 * 3600 * 1000;

function checkAge(keys: readonly Key[], at: number): Note[] {
  const [only, ...others] = keys.filter(({ jwk }) => isForSignatures(jwk));
  const madeAt = others.length === 0 ? dateIn(only?.jwk["kid"]) : undefined;
  if (only === undefined || madeAt === undefined || at - madeAt <= yearMs) return [];
  return [note("JWKS_ONE_OLD_KEY", `${only.name}: by its kid of ${new Date(madeAt).toISOString().slice(0, 10)}`)];
}

/** A date or a Unix time in a kid, in epoch milliseconds. */
function dateIn(kid: unknown): number | undefined {
  if (typeof kid !== "string") return undefined;
  const date = /(?<!\d)(20\d\d)[-_.]?(0[1-9]|1[0-2])[-_.]?(0[1-9]|[12]\d|3[01])(?!\d)/.exec(kid);
  const [, seconds] = /(?<!\d)(1[4-9]\d{8})(?:\d{3})?(?!\d)/.exec(kid) ?? [];
  const ms = date === null ? Number(seconds) * 1000 : Date.UTC(Number(date[1]), Number(date[2]) - 1, Number(date[3]));
  return Number.isNaN(ms) ? undefined : ms;
}
