import { StoreError } from "../../base/errors.ts";
import { type LiveRecord, jweOf, liveRecords } from "../rules/key-records.ts";
import type { Register } from "../store/register.ts";
import { type StoreDocument, parseDocument } from "./document.ts";
import { type IssuerCheck, type Owner, bindingOf, ownerOfBinding } from "./issuer-check.ts";
import { type Wrapping, type WrappingKey, type WrappingKeys, createWrapping, jweHeader } from "./key-wrapping.ts";
import { sealed, unsealed, verifySeal } from "./mac.ts";

/**
 * Opens stored documents, verifying their MACs, and seals them with new MACs. Also wraps and unwraps the private keys.
 * Trusts only what the MAC covers.
 */
export interface Custody extends Wrapping {
  readonly register: Register;
  /** Ids of the wrapping keys, in the order in which they were passed. */
  readonly wrappingKeys: readonly [string, ...string[]];
  /** Owner of the keys in the next commit. */
  readonly owner: Owner;
  /** Whether the next commit binds the private keys to a different issuer. */
  readonly movesIssuer: boolean;
  /** Whether the MAC already uses the owner and the wrapping key that the next commit will use. */
  readonly isMacCurrent: boolean;
  /** Whether the next commit moves the store to a different wrapping key. */
  readonly movesWrappingKey: boolean;
  /**
   * Verifies and parses a stored document.
   *
   * @throws StoreError `ERR_STORE_NOT_AUTHENTIC`, `ERR_STORE_ISSUER`, `ERR_WRAPPING_KEY_MISSING`, `ERR_STORE_FORMAT`,
   * `ERR_RECORDS_INVALID`
   */
  open(text: string): Promise<StoreDocument>;
  /** Serializes a document with its MAC. */
  seal(document: StoreDocument): Promise<string>;
  /**
   * Runs work whose commits move the store to the first wrapping key. Other commits keep the store's current wrapping
   * key, so that a new key can be rolled out to one process at a time while all processes can still read the store.
   */
  movingToFirst<T>(work: () => Promise<T>): Promise<T>;
}

export interface CustodyOptions {
  readonly register: Register;
  readonly keys: WrappingKeys;
  readonly issuerCheck: IssuerCheck;
  /** Reports whether to accept a document that is not authentic. Default: never. */
  readonly accepts?: ((problem: StoreError, document: StoreDocument) => boolean) | undefined;
}

/** The state of the document that was opened last. */
interface Found {
  /** Owner of the keys; `undefined` for a store without keys. */
  readonly owner: Owner | undefined;
  /** Id of the wrapping key that verified the MAC; missing if the document is not authentic. */
  readonly verifiedBy?: string;
}

/** Parses a stored document without verifying it. Returns `undefined` if it is malformed. */
function readUnverified(text: string): StoreDocument | undefined {
  try {
    return parseDocument(unsealed(text));
  } catch {
    return undefined;
  }
}

export function createCustody({ register, keys, issuerCheck, accepts = () => false }: CustodyOptions): Custody {
  const [first, ...others] = keys;
  let found: Found = { owner: undefined };
  let owner = issuerCheck(undefined);
  let movesToFirst = false;

  /**
   * Returns the wrapping key for the next commit: the first key if the store is being moved to it or if no key verified
   * the MAC; otherwise, the key that verified the MAC.
   */
  const wrappingKey = (): WrappingKey =>
    movesToFirst ? first : (keys.find(({ id }) => id === found.verifiedBy) ?? first);
  const wrapping = (owner: Owner): Wrapping => createWrapping([wrappingKey(), ...keys], bindingOf(owner));

  async function examine(text: string): Promise<{ readonly document: StoreDocument; readonly next: Found }> {
    try {
      const verifiedBy = await verifySeal(keys, text);
      const document = parseDocument(unsealed(text));
      return { document, next: { owner: document.owner, verifiedBy } };
    } catch (problem) {
      if (!(problem instanceof StoreError) || problem.code === "ERR_STORE_FORMAT") throw problem;
      const document = readUnverified(text);
      if (document === undefined || !accepts(problem, document)) throw problem;
      return { document, next: { owner: await likelyOwner(document) } };
    }
  }

  /** Returns the likely owner of a document that is not authentic. */
  async function likelyOwner({ records, owner }: StoreDocument): Promise<Owner> {
    const wanted = issuerCheck(undefined);
    const wrapped = await ownerOfWrapped(liveRecords(records)).catch(() => undefined);
    return wrapped ?? (wanted.isChosen ? wanted : owner);
  }

  /**
   * Returns the owner to which the private keys are bound, or `undefined` if none can be unwrapped. Unwrapping one of
   * them proves who the owner is.
   */
  async function ownerOfWrapped(records: readonly LiveRecord[]): Promise<Owner | undefined> {
    for (const record of records) {
      const jwe = jweOf(record);
      const issuer = jwe === undefined ? undefined : jweHeader(jwe)?.["iss"];
      if (jwe === undefined || typeof issuer !== "string") continue;
      const unwraps = await createWrapping(keys, issuer)
        .unwrap(record.kid, jwe)
        .then(
          () => true,
          () => false,
        );
      if (unwraps) return ownerOfBinding(issuer, issuerCheck(undefined));
    }
    return undefined;
  }

  return {
    register,
    wrappingKeys: [first.id, ...others.map(({ id }) => id)],
    get owner() {
      return owner;
    },
    get movesIssuer() {
      return found.owner !== undefined && found.owner.isChosen !== owner.isChosen;
    },
    get isMacCurrent() {
      return found.verifiedBy === wrappingKey().id && found.owner?.isChosen === owner.isChosen;
    },
    get movesWrappingKey() {
      return found.verifiedBy !== undefined && found.verifiedBy !== wrappingKey().id;
    },
    async open(text) {
      const { document, next } = await examine(text);
      const nextOwner = issuerCheck(next.owner);
      [found, owner] = [next, nextOwner];
      return document;
    },
    seal: (document) => sealed(wrappingKey(), JSON.stringify(document)),
    async movingToFirst(work) {
      movesToFirst = true;
      return work().finally(() => (movesToFirst = false));
    },
    wrap: (kid, privateJwk) => wrapping(owner).wrap(kid, privateJwk),
    unwrap(kid, jwe) {
      // While a store is being moved to a different issuer, some private keys are still bound to the previous one.
      const bound = [owner, found.owner ?? owner].find((owner) => jweHeader(jwe)?.["iss"] === bindingOf(owner));
      return wrapping(bound ?? owner).unwrap(kid, jwe);
    },
    isCurrent: (jwe) => wrapping(owner).isCurrent(jwe),
  };
}
