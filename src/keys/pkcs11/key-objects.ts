// Finds, generates and destroys key objects in one session. This code runs in the child.

import type { Handle, PKCS11 } from "pkcs11js";
import { CKA, CKK, CKM, CKO, p256Params } from "./constants.ts";
import { TokenFailure, toFailure, returnValue } from "./failure.ts";
import type { FoundKey } from "./messages.ts";
import { type KeySelector, nameOfKey } from "./uri.ts";

export interface OpenSession {
  readonly module: PKCS11;
  readonly handle: Handle;
}

/** A private key object and its public key object. Some tokens do not have the public key object. */
export interface KeyPair {
  readonly privateKey: Handle;
  readonly publicKey: Handle | undefined;
}

/** Finds the only matching private key, and its public key object. */
export function findPair(session: OpenSession, selector: KeySelector): KeyPair {
  const [privateKey, another] = findObjects(session, CKO.PRIVATE_KEY, selector);
  const name = nameOfKey(selector);
  if (privateKey === undefined) throw new TokenFailure("key", `the token has no private key with ${name}`);
  if (another !== undefined) {
    throw new TokenFailure("ambiguous", `the token has several private keys with ${name}; select one using its id`);
  }
  return { privateKey, publicKey: findPublicKey(session, privateKey) };
}

/**
 * Finds the public key object with the same ID and label as the private key. Some tokens give the two key objects
 * different labels, so a match by ID alone is enough if the ID is unique.
 */
function findPublicKey(session: OpenSession, privateKey: Handle): Handle | undefined {
  const label = labelOf(session, privateKey);
  const id = bytesOf(session, privateKey, CKA.ID);
  if (id === undefined) return findObjects(session, CKO.PUBLIC_KEY, { label })[0];
  const [named] = findObjects(session, CKO.PUBLIC_KEY, { id, label });
  if (named !== undefined || findObjects(session, CKO.PRIVATE_KEY, { id }).length > 1) return named;
  return findObjects(session, CKO.PUBLIC_KEY, { id })[0];
}

export function describePair(session: OpenSession, { privateKey, publicKey }: KeyPair): Omit<FoundKey, "key"> {
  const ofPrivate = (type: number): Uint8Array | undefined => bytesOf(session, privateKey, type);
  // On some tokens, only the private key object contains the public point.
  const ofEither = (type: number): Uint8Array | undefined =>
    (publicKey && bytesOf(session, publicKey, type)) ?? ofPrivate(type);
  return {
    id: ofPrivate(CKA.ID) ?? new Uint8Array(),
    label: labelOf(session, privateKey),
    isEc: ofPrivate(CKA.KEY_TYPE)?.[0] === CKK.EC,
    maySign: ofPrivate(CKA.SIGN)?.[0] === 1,
    alwaysAuthenticates: ofPrivate(CKA.ALWAYS_AUTHENTICATE)?.[0] === 1,
    params: ofEither(CKA.EC_PARAMS),
    point: ofEither(CKA.EC_POINT),
  };
}

/** Objects that must not be garbage-collected while another thread reads them. */
const pinned = new Set<unknown>();

/** Generates a P-256 key pair that can only sign. The private key cannot leave the token. */
export async function generatePair({ module, handle }: OpenSession, label: string, id: Uint8Array): Promise<KeyPair> {
  const publicTemplate = [
    ...all(true, CKA.TOKEN, CKA.VERIFY),
    ...all(false, CKA.WRAP, CKA.DERIVE),
    { type: CKA.EC_PARAMS, value: Buffer.from(p256Params) },
    ...nameTemplate(label, id),
  ];
  const privateTemplate = [
    ...all(true, CKA.TOKEN, CKA.PRIVATE, CKA.SENSITIVE, CKA.SIGN),
    // Some modules enable these by default.
    ...all(false, CKA.EXTRACTABLE, CKA.UNWRAP, CKA.DERIVE),
    ...nameTemplate(label, id),
  ];
  const templates = [publicTemplate, privateTemplate] as const;
  pinned.add(templates);
  try {
    const pair = await module.C_GenerateKeyPairAsync(handle, { mechanism: CKM.EC_KEY_PAIR_GEN }, ...templates);
    // Set separately because tpm2-pkcs11 rejects these attributes in templates.
    for (const [object, usage] of [[pair.publicKey, CKA.ENCRYPT] as const, [pair.privateKey, CKA.DECRYPT] as const]) {
      try {
        module.C_SetAttributeValue(handle, object, all(false, usage));
      } catch {
        // The token might not allow this. That is harmless, because no standard mechanism encrypts with a P-256 key.
      }
    }
    return pair;
  } catch (error) {
    throw toFailure(error, "C_GenerateKeyPair");
  } finally {
    pinned.delete(templates);
  }
}

/** Changes the label and ID of both keys or of neither. Throws if the token does not support that. */
export function renamePair({ module, handle }: OpenSession, pair: KeyPair, label: string, id: Uint8Array): void {
  const { privateKey, publicKey } = pair;
  const before = module.C_GetAttributeValue(handle, privateKey, [{ type: CKA.LABEL }, { type: CKA.ID }]);
  module.C_SetAttributeValue(handle, privateKey, nameTemplate(label, id));
  try {
    if (publicKey !== undefined) module.C_SetAttributeValue(handle, publicKey, nameTemplate(label, id));
  } catch (error) {
    module.C_SetAttributeValue(handle, privateKey, before);
    throw error;
  }
}

/** Destroys both keys, starting with the private key, so that no key that can sign remains if the second step fails. */
export function destroyPair(session: OpenSession, selector: KeySelector): void {
  const { module, handle } = session;
  const { privateKey, publicKey } = findPair(session, selector);
  module.C_DestroyObject(handle, privateKey);
  if (publicKey !== undefined) module.C_DestroyObject(handle, publicKey);
}

const all = (value: boolean, ...types: readonly number[]): { type: number; value: boolean }[] =>
  types.map((type) => ({ type, value }));

const nameTemplate = (label: string, id: Uint8Array): { type: number; value: string | Buffer }[] => [
  { type: CKA.LABEL, value: label },
  { type: CKA.ID, value: Buffer.from(id) },
];

/** Finds at most two objects, because two are enough to detect an ambiguous selector. */
function findObjects({ module, handle }: OpenSession, objectClass: number, { id, label }: KeySelector): Handle[] {
  module.C_FindObjectsInit(handle, [
    { type: CKA.CLASS, value: objectClass },
    { type: CKA.TOKEN, value: true },
    ...(id === undefined ? [] : [{ type: CKA.ID, value: Buffer.from(id) }]),
    ...(label === undefined ? [] : [{ type: CKA.LABEL, value: label }]),
  ]);
  try {
    return module.C_FindObjects(handle, 2);
  } finally {
    module.C_FindObjectsFinal(handle);
  }
}

/** Returns an attribute's bytes, or `undefined` if the object does not have the attribute or hides it. */
function bytesOf({ module, handle }: OpenSession, object: Handle, type: number): Uint8Array | undefined {
  try {
    const value = module.C_GetAttributeValue(handle, object, [{ type }])[0]?.value;
    return value === undefined || value.length === 0 ? undefined : Uint8Array.from(value);
  } catch (error) {
    if (returnValue(error).startsWith("CKR_ATTRIBUTE_")) return undefined;
    throw error;
  }
}

const labelOf = (session: OpenSession, object: Handle): string =>
  new TextDecoder().decode(bytesOf(session, object, CKA.LABEL));
