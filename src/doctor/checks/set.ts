import type { Key } from "../decode-key.ts";
import { type Note, note } from "../finding.ts";
import { isForEncryption, isForSignatures } from "../key-purpose.ts";
import { counted } from "../value-text.ts";

/** Number of keys above which a set is considered too large. No issuer needs that many. */
const manyKeys = 100;

/** Compares a set's entries with each other. */
export function checkSet(keys: readonly Key[], count: number, at: number): Note[] {
  const examined = keys.length < count ? `, of which ${keys.length.toLocaleString("en")} were examined` : "";
  const many = count > manyKeys ? [note("JWKS_KEYS_MANY", `${counted(count, "key")}${examined}`)] : [];
  return [...many, ...checkKids(keys), ...checkConfusable(keys), ...checkTwins(keys), ...checkAge(keys, at)];
}

/**
 * Checks that a set has a key that can verify tokens.
 *
 * @param count number of entries, including entries that are not keys
 * @param isOfIssuer whether the set is at an issuer's `jwks_uri` and therefore not a SPIFFE bundle
 */
export function checkPurpose(keys: readonly Key[], count: number, isOfIssuer: boolean): Note[] {
  const canVerify = keys.some(({ jwk, thumbprint }) => {
    const { use } = jwk;
    if (use === "x509-svid") return true;
    const isMeant = use === undefined || use === "sig" || (use === "jwt-svid" && !isOfIssuer);
    return isMeant && isForSignatures(jwk) && thumbprint !== undefined;
  });
  if (count === 0 || canVerify) return [];
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
    // In a SPIFFE bundle, the certificate authorities have no kid, but the keys for tokens do.
    if (use === "x509-svid") return [];
    const isNeeded = use === "jwt-svid" || keys.length > 1;
    return [note(isNeeded ? "JWKS_KID_MISSING" : "JWKS_ONE_KEY_NO_KID", name)];
  });
}

/**
 * Finds kids that could be mistaken for each other by people, or by software that trims, case-folds or normalizes
 * strings.
 */
function checkConfusable(keys: readonly Key[]): Note[] {
  const named = keys.flatMap(({ jwk: { kid }, name }) => (typeof kid === "string" ? [{ kid, name }] : []));
  const byForm = Map.groupBy(named, ({ kid }) => kid.normalize("NFKC").replaceAll(/\s/g, "").toLowerCase());
  return [...byForm.values()].flatMap(([first, ...others]) =>
    others
      .filter(({ kid }) => kid !== first?.kid)
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
  const createdAt = others.length === 0 ? dateIn(only?.jwk["kid"]) : undefined;
  if (only === undefined || createdAt === undefined || at - createdAt <= yearMs) return [];
  return [
    note(
      "JWKS_ONE_OLD_KEY",
      `${only.name}: its kid contains the date ${new Date(createdAt).toISOString().slice(0, 10)}`,
    ),
  ];
}

/** Returns the date or the Unix time in a kid, in epoch milliseconds. */
function dateIn(kid: unknown): number | undefined {
  if (typeof kid !== "string") return undefined;
  const date = /(?<!\d)(20\d\d)[-_.]?(0[1-9]|1[0-2])[-_.]?(0[1-9]|[12]\d|3[01])(?!\d)/.exec(kid);
  const [, seconds] = /(?<!\d)(1[4-9]\d{8})(?:\d{3})?(?!\d)/.exec(kid) ?? [];
  const ms = date === null ? Number(seconds) * 1000 : Date.UTC(Number(date[1]), Number(date[2]) - 1, Number(date[3]));
  return Number.isNaN(ms) ? undefined : ms;
}
