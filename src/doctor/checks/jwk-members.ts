import { type Key, isTooLong, requiredOf } from "../decode-key.ts";
import { type Note, note } from "../finding.ts";
import { encryptionAlgorithms, isForEncryption, isForSignatures, signatureAlgorithms } from "../key-purpose.ts";
import { privateIn } from "../private-key-patterns.ts";
import { counted, quotedName } from "../value-text.ts";

const operationsFor = {
  sig: ["sign", "verify"],
  enc: ["encrypt", "decrypt", "wrapKey", "unwrapKey", "deriveKey", "deriveBits"],
};
const privateOperations = new Set(["sign", "decrypt", "unwrapKey"]);

/**
 * Checks the members of a key that do not depend on its type.
 *
 * @param isOfIssuer whether the key is at an issuer's `jwks_uri`
 */
export function checkMembers(key: Key, isOfIssuer: boolean): Note[] {
  const { jwk, name } = key;
  if (jwk["kty"] === "oct") {
    // If there is no k, there is no secret.
    return [
      privateIn(jwk).includes("k")
        ? note("JWKS_OCT", withThumbprint(key))
        : note("JWKS_MEMBER_MISSING", `${name} has no "k"`),
    ];
  }
  return [...checkPrivateMembers(key), ...checkRequired(key), ...checkAlg(key), ...checkUse(jwk, name, isOfIssuer)];
}

function checkPrivateMembers(key: Key): Note[] {
  const found = privateIn(key.jwk);
  return found.length === 0 ? [] : [note("JWKS_PRIVATE_MEMBERS", `${withThumbprint(key)} has ${found.join(", ")}`)];
}

function withThumbprint({ name, thumbprint }: Key): string {
  return thumbprint === undefined ? name : `${name}, thumbprint ${thumbprint},`;
}

function checkRequired({ jwk, name, values }: Key): Note[] {
  const { kty } = jwk;
  if (typeof kty !== "string" || kty === "") return [note("JWKS_KTY_MISSING", name)];
  if (kty === "AKP") return [note("JWKS_KTY_AKP", `${name}, alg ${quotedName(jwk["alg"])}`)];
  const members = requiredOf(kty);
  if (members.length === 0) return [note("JWKS_KTY_UNKNOWN", `${name} has kty ${quotedName(kty)}`)];
  const notes: Note[] = [];
  for (const member of members) {
    const value = jwk[member];
    const problem = values[member]?.problem;
    if (value === undefined) notes.push(note("JWKS_MEMBER_MISSING", `${name} has no "${member}"`));
    else if (typeof value !== "string")
      notes.push(note("JWKS_MEMBER_MISSING", `"${member}" in ${name} is not a string`));
    else if (value === "") notes.push(note("JWKS_MEMBER_MISSING", `"${member}" in ${name} is empty`));
    else if (isTooLong(value))
      notes.push(note("JWKS_MEMBER_TOO_LONG", `"${member}" in ${name} has ${counted(value.length, "character")}`));
    else if (problem !== undefined) notes.push(note(problem, `"${member}" in ${name}`));
  }
  return notes;
}

function checkAlg({ jwk, name }: Key): Note[] {
  const { alg, use } = jwk;
  const [signatures, encryptions] = [signatureAlgorithms(jwk), encryptionAlgorithms(jwk)];
  // An unknown type is a separate finding.
  if (signatures.length + encryptions.length === 0) return [];
  if (alg === undefined) return isForSignatures(jwk) ? [note("JWKS_ALG_MISSING", name)] : [];
  if (typeof alg !== "string" || ![...signatures, ...encryptions].includes(alg)) {
    return [note("JWKS_ALG_MISMATCH", `${name} has alg ${quotedName(alg)}`)];
  }
  const isContradicted = use === "sig" ? !signatures.includes(alg) : use === "enc" && !encryptions.includes(alg);
  return isContradicted
    ? [note("JWKS_USE_ALG_CONTRADICT", `${name} has use ${quotedName(use)} and alg ${quotedName(alg)}`)]
    : [];
}

function checkUse(jwk: Key["jwk"], name: string, isOfIssuer: boolean): Note[] {
  const { use } = jwk;
  const notes = isEncryptionKey(jwk) ? [note("JWKS_ENCRYPTION_KEY", name)] : [];
  const known: readonly unknown[] = [undefined, "sig", "enc", "x509-svid", isOfIssuer ? "sig" : "jwt-svid"];
  if (!known.includes(use)) notes.push(note("JWKS_USE_UNKNOWN", `${name} has use ${quotedName(use)}`));
  return [...notes, ...checkOperations(jwk, name)];
}

function checkOperations(jwk: Key["jwk"], name: string): Note[] {
  const { use, key_ops: operations } = jwk;
  const notes: Note[] = [];
  if (operations === undefined) return notes;
  if (!isListOfStrings(operations)) return [...notes, note("JWKS_KEY_OPS_TYPE", name)];
  const other = use === "sig" ? operationsFor.enc : use === "enc" ? operationsFor.sig : [];
  if (operations.some((operation) => other.includes(operation))) {
    const listed = operations.map(quotedName).join(", ");
    notes.push(note("JWKS_USE_KEY_OPS_CONTRADICT", `${name} has use ${quotedName(use)} and key_ops ${listed}`));
  } else if (privateIn(jwk).length === 0) {
    const found = operations.filter((operation) => privateOperations.has(operation));
    if (found.length > 0) notes.push(note("JWKS_KEY_OPS_PRIVATE", `${name} has key_ops ${found.join(", ")}`));
    else if (!operations.includes("verify") && isMeantToVerify(jwk, operations)) {
      const listed = operations.length === 0 ? "[]" : operations.map(quotedName).join(", ");
      notes.push(note("JWKS_KEY_OPS_NO_VERIFY", `${name} has key_ops ${listed}`));
    }
  }
  return notes;
}

/**
 * Reports whether a key is for signatures, judging by its `use` or `alg`. If it has neither, it is for signatures
 * unless all of its operations are for encryption.
 */
function isMeantToVerify(jwk: Key["jwk"], operations: readonly string[]): boolean {
  if (isForEncryption(jwk) || signatureAlgorithms(jwk).length === 0) return false;
  const isEncryption = operations.length > 0 && operations.every((operation) => operationsFor.enc.includes(operation));
  return jwk["use"] === "sig" || jwk["alg"] !== undefined || !isEncryption;
}

/** Reports whether a key is a valid encryption key, which some older verifiers cannot handle. */
function isEncryptionKey(jwk: Key["jwk"]): boolean {
  const { alg, kty } = jwk;
  const isContradicted = typeof alg === "string" && signatureAlgorithms(jwk).includes(alg);
  return isForEncryption(jwk) && !isContradicted && (kty === "RSA" || kty === "EC");
}

function isListOfStrings(value: unknown): value is readonly string[] {
  return (
    Array.isArray(value) && value.every((item) => typeof item === "string") && new Set(value).size === value.length
  );
}
