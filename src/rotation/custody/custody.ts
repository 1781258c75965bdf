import { StoreError } from "../../base/errors.ts";
import { type LiveRecord, jweOf, liveRecords } from "../rules/records.ts";
import type { Register } from "../store/register.ts";
import { type StoreDocument, parseDocument } from "./document.ts";
import { type IssuerCheck, type Owner, bindingOf, ownerOfBinding } from "./issuer-check.ts";
import { sealed, unsealed, verifySeal } from "./mac.ts";
import { type Wrapping, type WrappingKey, type WrappingKeys, createWrapping, jweHeader } from "./wrapping.ts";

/**
 * A store as far as it can be believed: opening a text verifies its MAC, sealing a document makes it. Wraps and unwraps the private keys of its
 * owner.
 */
export interface Custody extends Wrapping {
  readonly register: Register;
  /** The ids of the wrapping keys, as they were given. */
  readonly wrappingKeys: readonly [string, ...string[]];
  /** For whom the next commit is made. */
  readonly owner: Owner;
  /** Whether the private keys are to be bound to another issuer than they are. */
  readonly movesIssuer: boolean;
  /** Whether the MAC of the store is as the next commit makes it: for this owner, under that wrapping key. */
  readonly isMacCurrent: boolean;
  /** Whether the next commit puts the store under another wrapping key than it is under. */
  readonly movesWrappingKey: boolean;
  /**
   * The document of a text.
   *
   * @throws StoreError `ERR_STORE_NOT_AUTHENTIC`, `ERR_STORE_ISSUER`, `ERR_WRAPPING_KEY_MISSING`, `ERR_STORE_FORMAT`, `ERR_RECORDS_INVALID`
   */
  open(text: string): Promise<StoreDocument>;
  /** The text of a document. */
  seal(document: StoreDocument): Promise<string>;
}

export interface CustodyOptions {
  readonly register: Register;
  readonly keys: WrappingKeys;
  readonly issuerCheck: IssuerCheck;
  /**
   * Whether commits put the store under the first wrapping key. Default: they leave it under its own, so processes that get a new key one after
   * the other can all read the store.
   */
  readonly movesToFirst?: boolean | undefined;
  /** Whether a document that cannot be believed is taken as it is. Default: never. */
  readonly accepts?: ((problem: StoreError, document: StoreDocument) => boolean) | undefined;
}

/** What is known of the text that was opened. */
interface Found {
  /** `undefined` for a store without keys. */
  readonly owner: Owner | undefined;
  /** The id of the wrapping key under which the MAC was verified. */
  readonly verifiedBy?: string;
}

/** The document of a text that may be any text. */
function readable(text: string): StoreDocument | undefined {
  try {
    return parseDocument(unsealed(text));
  } catch {
    return undefined;
  }
}

export function createCustody({
  register,
  keys,
  issuerCheck,
  movesToFirst = false,
  accepts = () => false,
}: CustodyOptions): Custody {
  const [first, ...others] = keys;
  let found: Found = { owner: undefined };
  let owner = issuerCheck(undefined);

  /** The wrapping key of the next commit. A store without a MAC that was verified gets the first one. */
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
      const document = readable(text);
      if (document === undefined || !accepts(problem, document)) throw problem;
      return { document, next: { owner: await guess(document) } };
    }
  }

  /** Whose the keys are, where a document was taken as it is. */
  async function guess({ records, owner }: StoreDocument): Promise<Owner> {
    const wanted = issuerCheck(undefined);
    const wrapped = await ownerOfWrapped(liveRecords(records)).catch(() => undefined);
    return wrapped ?? (wanted.isChosen ? wanted : owner);
  }

  /** To whom private keys are bound, which is certain where one can be unwrapped. */
  async function ownerOfWrapped(records: readonly LiveRecord[]): Promise<Owner | undefined> {
    for (const record of records) {
      const jwe = jweOf(record);
      const issuer = jwe === undefined ? undefined : jweHeader(jwe)?.["iss"];
      if (jwe === undefined || typeof issuer !== "string") continue;
      const isOurs = await createWrapping(keys, issuer)
        .unwrap(record.kid, jwe)
        .then(
          () => true,
          () => false,
        );
      if (isOurs) return ownerOfBinding(issuer, issuerCheck(undefined));
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
    wrap: (kid, privateJwk) => wrapping(owner).wrap(kid, privateJwk),
    unwrap(kid, jwe) {
      // While a store passes to another issuer, some private keys are still bound to the former one.
      const bound = [owner, found.owner ?? owner].find((owner) => jweHeader(jwe)?.["iss"] === bindingOf(owner));
      return wrapping(bound ?? owner).unwrap(kid, jwe);
    },
    isCurrent: (jwe) => wrapping(owner).isCurrent(jwe),
  };
}
