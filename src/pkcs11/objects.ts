// Finding, making and destroying key objects, in one session. Runs in the child.
import type { Handle, PKCS11 } from "pkcs11js";
import { CKA, CKK, CKM, CKO, p256Params } from "./constants.ts";
import { TokenFailure, returnValue } from "./failures.ts";
import type { FoundKey, KeySelector } from "./messages.ts";
import { keyName } from "./names.ts";

/** Both halves of a key; some tokens hold no public object. */
export interface KeyObjects {
  readonly privateKey: Handle;
  readonly publicKey: Handle | undefined;
}

const maxMatches = 2;

/** The one private key that matches, and its public object. Throws {@link TokenFailure} `missing`, `ambiguous`. */
export function findKey(module: PKCS11, session: Handle, selector: KeySelector): KeyObjects {
  const [privateKey, another] = findObjects(module, session, CKO.PRIVATE_KEY, selector);
  if (privateKey === undefined) {
    throw new TokenFailure("missing", `the token holds no private key with ${keyName(selector)}`);
  }
  if (another !== undefined) {
    throw new TokenFailure(
      "ambiguous",
      `the token holds several private keys with ${keyName(selector)}; name one by its id`,
    );
  }
  const id = bytesOf(module, session, privateKey, CKA.ID) ?? new Uint8Array();
  // The id is what belongs to both halves; labels are for people.
  const by: KeySelector = id.length > 0 ? { id } : { label: textOf(module, session, privateKey, CKA.LABEL) };
  return { privateKey, publicKey: findObjects(module, session, CKO.PUBLIC_KEY, by)[0] };
}

export function describeKey(module: PKCS11, session: Handle, number: number, objects: KeyObjects): FoundKey {
  const { privateKey, publicKey } = objects;
  const ofPrivate = (type: number): Uint8Array | undefined => bytesOf(module, session, privateKey, type);
  // Some tokens have the public point on the private object too, or only there.
  const ofEither = (type: number): Uint8Array | undefined =>
    (publicKey && bytesOf(module, session, publicKey, type)) ?? ofPrivate(type);
  return {
    key: number,
    id: ofPrivate(CKA.ID) ?? new Uint8Array(),
    label: textOf(module, session, privateKey, CKA.LABEL),
    isEc: ofPrivate(CKA.KEY_TYPE)?.[0] === CKK.EC,
    maySign: ofPrivate(CKA.SIGN)?.[0] === 1,
    alwaysAuthenticates: ofPrivate(CKA.ALWAYS_AUTHENTICATE)?.[0] === 1,
    params: ofEither(CKA.EC_PARAMS),
    point: ofEither(CKA.EC_POINT),
  };
}

/** Makes a key pair on P-256 that signs and does nothing else, and whose private half cannot leave the token. The session must be for reading and writing. */
export async function generateKey(
  module: PKCS11,
  session: Handle,
  label: string,
  id: Uint8Array,
  pinned: Set<unknown>,
): Promise<KeyObjects> {
  const name = [
    { type: CKA.LABEL, value: label },
    { type: CKA.ID, value: Buffer.from(id) },
  ];
  const publicTemplate = [
    { type: CKA.TOKEN, value: true },
    { type: CKA.VERIFY, value: true },
    ...no(CKA.WRAP, CKA.DERIVE),
    { type: CKA.EC_PARAMS, value: Buffer.from(p256Params) },
    ...name,
  ];
  const privateTemplate = [
    { type: CKA.TOKEN, value: true },
    { type: CKA.PRIVATE, value: true },
    { type: CKA.SENSITIVE, value: true },
    { type: CKA.EXTRACTABLE, value: false },
    { type: CKA.SIGN, value: true },
    // What a module's defaults would allow besides.
    ...no(CKA.UNWRAP, CKA.DERIVE),
    ...name,
  ];
  const inputs = [publicTemplate, privateTemplate];
  pinned.add(inputs);
  try {
    const made = await module.C_GenerateKeyPairAsync(
      session,
      { mechanism: CKM.EC_KEY_PAIR_GEN },
      publicTemplate,
      privateTemplate,
    );
    // Not in the templates, because tpm2-pkcs11 makes no key with them.
    withdraw(module, session, made.publicKey, CKA.ENCRYPT);
    withdraw(module, session, made.privateKey, CKA.DECRYPT);
    return made;
  } finally {
    pinned.delete(inputs);
  }
}

const no = (...usages: readonly number[]): { type: number; value: boolean }[] =>
  usages.map((type) => ({ type, value: false }));

/** Takes a usage away where the token lets that be done; no standard mechanism encrypts with a key on P-256, so it may stay. */
function withdraw(module: PKCS11, session: Handle, object: Handle, usage: number): void {
  try {
    module.C_SetAttributeValue(session, object, no(usage));
  } catch {
    // A token that is gone is seen at the next call.
  }
}

/** Gives both halves another label and id, or neither; tokens that cannot do that throw. */
export function renameKey(module: PKCS11, session: Handle, objects: KeyObjects, label: string, id: Uint8Array): void {
  const { privateKey, publicKey } = objects;
  const before = [CKA.LABEL, CKA.ID].map((type) => ({
    type,
    value: Buffer.from(bytesOf(module, session, privateKey, type) ?? []),
  }));
  const next = [
    { type: CKA.LABEL, value: label },
    { type: CKA.ID, value: Buffer.from(id) },
  ];
  module.C_SetAttributeValue(session, privateKey, next);
  try {
    if (publicKey !== undefined) module.C_SetAttributeValue(session, publicKey, next);
  } catch (error) {
    module.C_SetAttributeValue(session, privateKey, before);
    throw error;
  }
}

/** Destroys both halves. The private one goes first: where the rest fails, no key is left that could sign. */
export function destroyKey(module: PKCS11, session: Handle, selector: KeySelector): void {
  const { privateKey, publicKey } = findKey(module, session, selector);
  module.C_DestroyObject(session, privateKey);
  if (publicKey !== undefined) module.C_DestroyObject(session, publicKey);
}

function findObjects(module: PKCS11, session: Handle, objectClass: number, { id, label }: KeySelector): Handle[] {
  module.C_FindObjectsInit(session, [
    { type: CKA.CLASS, value: objectClass },
    { type: CKA.TOKEN, value: true },
    ...(id === undefined ? [] : [{ type: CKA.ID, value: Buffer.from(id) }]),
    ...(label === undefined ? [] : [{ type: CKA.LABEL, value: label }]),
  ]);
  try {
    return module.C_FindObjects(session, maxMatches);
  } finally {
    module.C_FindObjectsFinal(session);
  }
}

/** An attribute's bytes; `undefined` where the object has none or does not show it. */
function bytesOf(module: PKCS11, session: Handle, object: Handle, type: number): Uint8Array | undefined {
  try {
    const value = module.C_GetAttributeValue(session, object, [{ type }])[0]?.value;
    return value === undefined || value.length === 0 ? undefined : Uint8Array.from(value);
  } catch (error) {
    if (returnValue(error).startsWith("CKR_ATTRIBUTE_")) return undefined;
    throw error;
  }
}

const textOf = (module: PKCS11, session: Handle, object: Handle, type: number): string =>
  new TextDecoder().decode(bytesOf(module, session, object, type));
