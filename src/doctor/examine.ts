import { duplicateMembers } from "../base/duplicate-members.ts";
import { checkEc, checkOkp } from "./checks/curve.ts";
import { checkDiscovery } from "./checks/discovery.ts";
import { checkPrivate } from "./checks/embedded-secrets.ts";
import { checkHttp } from "./checks/http.ts";
import { checkMembers } from "./checks/jwk-members.ts";
import { checkValidity } from "./checks/key-validity.ts";
import { checkKnown } from "./checks/known-private-keys.ts";
import { checkSharedPrimes } from "./checks/rsa-shared.ts";
import { checkRsaKeys } from "./checks/rsa.ts";
import { checkPurpose, checkSet } from "./checks/set.ts";
import { checkTls } from "./checks/tls-expiry.ts";
import { checkWatch } from "./checks/watch.ts";
import { checkX5c } from "./checks/x5c.ts";
import { type Key, decodeKey, maxKeys } from "./decode-key.ts";
import { type Finding, type Note, findings, note } from "./finding.ts";
import { isObject, readJson } from "./lenient-json.ts";
import type { Observations } from "./observations.ts";
import { setResponse } from "./read-exchange.ts";
import { statesOf } from "./set-states.ts";
import { bodyText, quotedName, typeText } from "./value-text.ts";

/**
 * Finds problems in an issuer's discovery document and JWK Set. Each finding lists the verifiers that fail because of
 * it. Uses only observations, so it works on every runtime. Returns the worst findings first.
 *
 * @example
 * ```ts
 * const body = await readFile("jwks.json");
 * const findings = await examine({ at: Date.now(), set: { body } });
 * ```
 */
export async function examine(observations: Observations): Promise<readonly Finding[]> {
  const { at, blocklist = new Set(), tokens = [] } = observations;
  const notes: Note[] = [...checkHttp(observations), ...checkTls(observations)];
  const set = readSet(observations);
  const keys: Key[] = [];
  const isOfIssuer = observations.discovery !== undefined;
  if (set !== undefined) {
    notes.push(...set.notes);
    for (const [index, entry] of set.entries.slice(0, maxKeys).entries()) {
      if (isObject(entry)) keys.push(await decodeKey(entry, index));
      else notes.push(note("JWKS_MEMBER_NOT_OBJECT", `entry ${index + 1} is ${typeText(entry)}`));
    }
    notes.push(...checkSet(keys, set.entries.length, at));
    for (const key of keys) {
      notes.push(...checkMembers(key, isOfIssuer), ...checkValidity(key, at), ...checkEc(key), ...checkOkp(key));
      notes.push(...(await checkKnown(key, blocklist)), ...(await checkX5c(key, observations)));
    }
    notes.push(
      ...checkRsaKeys(keys),
      ...checkSharedPrimes(keys, blocklist),
      ...checkPurpose(keys, set.entries.length, isOfIssuer),
    );
  }
  notes.push(...checkDiscovery(observations, set === undefined ? undefined : keys));
  notes.push(...checkWatch(await statesOf(observations), tokens));
  return findings(notes);
}

function readSet(observations: Observations): { entries: readonly unknown[]; notes: readonly Note[] } | undefined {
  const body = setResponse(observations)?.body;
  if (body === undefined) return undefined;
  const { text, value, notes: found } = readJson(body, "JWK Set");
  const notes = [...found, ...checkPrivate(value ?? text, "JWK Set")];
  const only = (...more: Note[]) => ({ entries: [], notes: [...notes, ...more] });
  if (value === undefined) return only(note("JWKS_NOT_JSON", bodyText(text)));
  for (const member of new Set(duplicateMembers(text))) notes.push(note("JWKS_MEMBER_TWICE", quotedName(member)));
  const keys = isObject(value) ? value["keys"] : undefined;
  if (keys === undefined) return only(note("JWKS_KEYS_MISSING", isObject(value) ? "no keys member" : typeText(value)));
  if (!Array.isArray(keys)) return only(note("JWKS_KEYS_NOT_LIST", `keys is ${typeText(keys)}`));
  return keys.length === 0 ? only(note("JWKS_KEYS_EMPTY", "keys is []")) : { entries: keys, notes };
}
