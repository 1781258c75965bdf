import { StoreError, codeOf } from "../../base/errors.ts";
import type { CommitOptions, Committed, KeyEvent, KeyRecord, KeyStore, Snapshot, StoreCall } from "../store/store.ts";
import { type Owner, type IssuerCheck, bindingOf, ownerOfBinding } from "./issuer-check.ts";
import { liveRecords, jweOf } from "../rules/records.ts";
import { claimedOwner, makeMac, notAuthentic, verifyMac } from "./mac.ts";
import { type Wrapping, type WrappingKey, type WrappingKeys, createWrapping, headerOf } from "./wrapping.ts";

/**
 * A store as far as it can be believed: loading verifies the MAC, committing makes it. Wraps and unwraps the private keys of its
 * owner.
 */
export interface Custody extends Wrapping {
  /** @throws besides, on loading: StoreError `ERR_STORE_NOT_AUTHENTIC`, `ERR_STORE_ISSUER`, `ERR_WRAPPING_KEY_MISSING` */
  readonly store: KeyStore;
  /** What the store answered last, believed or not: for people, and for no decision. */
  readonly answer: Snapshot | undefined;
  /** The ids of the wrapping keys, as they were given. */
  readonly wrappingKeys: readonly [string, ...string[]];
  /** The owner of the keys, as last loaded. */
  readonly owner: Owner;
  /** Whether the private keys are to be bound to another issuer than they are. */
  readonly isTaking: boolean;
  /** Whether the MAC of the store is as the next commit makes it: for this owner, under that wrapping key. */
  readonly isMacCurrent: boolean;
  /** Whether the next commit puts the store under another wrapping key than it is under. */
  readonly movesWrappingKey: boolean;
  /** Remembers where keys are served for which no issuer was chosen. */
  noteIssuer(issuer: string): Promise<void>;
}

export interface CustodyOptions {
  readonly store: KeyStore;
  readonly keys: WrappingKeys;
  readonly issuerCheck: IssuerCheck;
  /**
   * Whether commits put the store under the first wrapping key. Default: they leave it under its own, so replicas that get a new key one after
   * the other can all read the store.
   */
  readonly movesToFirst?: boolean | undefined;
  /** Whether records that cannot be believed are taken as they are. Default: never. */
  readonly accepts?: ((problem: StoreError, snapshot: Committed) => boolean) | undefined;
}

/** What is known of the records that were loaded. */
interface Found {
  /** `undefined` for a store without keys. */
  readonly owner: Owner | undefined;
  /** The id of the wrapping key under which the MAC was verified. */
  readonly verifiedBy?: string;
}

const maxAttempts = 20;
const empty: Found = { owner: undefined };

export function createCustody({
  store,
  keys,
  issuerCheck,
  movesToFirst = false,
  accepts = () => false,
}: CustodyOptions): Custody {
  const [first, ...others] = keys;
  let found = empty;
  /** The owner for which the next commit is made. */
  let owner = issuerCheck(undefined);
  /** The newest revision that was loaded or committed. An older one is refused: somebody may have put an old copy in place. */
  let newestRevision = 0;
  let answer: Snapshot | undefined;

  /** The wrapping key of the next commit. A store without keys, or without a MAC that was verified, gets the first one. */
  const wrappingKey = (): WrappingKey =>
    movesToFirst ? first : (keys.find(({ id }) => id === found.verifiedBy) ?? first);
  const wrapping = (owner: Owner): Wrapping => createWrapping([wrappingKey(), ...keys], bindingOf(owner));

  async function load(options?: StoreCall): Promise<Snapshot> {
    // As it was before the store was asked: another commit of this process may come before the answer.
    const before = newestRevision;
    answer = undefined;
    const snapshot = await store.load(options);
    answer = snapshot;
    checkShape(snapshot);
    checkNotOlder(snapshot, before);
    const next = await examine(snapshot).catch(async (problem: unknown) => {
      if (problem instanceof StoreError && accepts(problem, snapshot)) return guess(snapshot);
      throw problem;
    });
    const nextOwner = issuerCheck(next.owner);
    [found, owner] = [next, nextOwner];
    saw(snapshot.revision);
    return snapshot;
  }

  /** @throws StoreError `ERR_STORE_NOT_AUTHENTIC`, `ERR_WRAPPING_KEY_MISSING` */
  async function examine(snapshot: Committed): Promise<Found> {
    const { revision, records, mac } = snapshot;
    if ((mac ?? undefined) !== undefined) return verifyMac(keys, snapshot);
    if (revision === 0 && records.length === 0) return empty;
    throw notAuthentic("its MAC is gone");
  }

  /** Whose the records are, where they were taken as they are. */
  async function guess(snapshot: Committed): Promise<Found> {
    const wanted = issuerCheck(undefined);
    const wrapped = await ownerOfWrapped(snapshot.records).catch(() => undefined);
    return { owner: wrapped ?? (wanted.isChosen ? wanted : claimedOwner(snapshot)) };
  }

  /** To whom private keys are bound, which is certain where one can be unwrapped. @throws StoreError `ERR_WRAPPING_KEY_MISSING` */
  async function ownerOfWrapped(records: readonly KeyRecord[]): Promise<Owner | undefined> {
    let missing: StoreError | undefined;
    for (const record of liveRecords(records)) {
      const jwe = jweOf(record);
      const header = jwe === undefined ? undefined : headerOf(jwe);
      if (jwe === undefined || typeof header?.["iss"] !== "string") continue;
      try {
        await createWrapping(keys, header["iss"]).unwrap(record.kid, jwe);
        return ownerOfBinding(header["iss"], issuerCheck(undefined));
      } catch (error) {
        if (error instanceof StoreError && error.code === "ERR_WRAPPING_KEY_MISSING") missing = error;
      }
    }
    if (missing !== undefined) throw missing;
    return undefined;
  }

  async function commitFor(
    owner: Owner,
    expectedRevision: number,
    records: readonly KeyRecord[],
    events: readonly KeyEvent[],
    options: CommitOptions = {},
  ): Promise<number> {
    const key = wrappingKey();
    const mac = await makeMac(key, owner, expectedRevision + 1, records);
    const revision = await store.commit(expectedRevision, records, events, { ...options, mac });
    found = { owner, verifiedBy: key.id };
    saw(revision);
    return revision;
  }

  function saw(revision: number): void {
    newestRevision = Math.max(newestRevision, revision);
  }

  return {
    store: {
      load,
      commit: (...args) => commitFor(owner, ...args),
      // Nothing that is decided from leases makes a key believed, so no MAC covers them.
      join: (...args) => store.join(...args),
      renew: (...args) => store.renew(...args),
      leave: (...args) => store.leave(...args),
      events: (options) => store.events(options),
      watch: (onChange, options) => store.watch(onChange, options),
      close: () => store.close(),
    },
    get answer() {
      return answer;
    },
    wrappingKeys: [first.id, ...others.map(({ id }) => id)],
    get owner() {
      return owner;
    },
    get isTaking() {
      return found.owner !== undefined && found.owner.isChosen !== owner.isChosen;
    },
    get isMacCurrent() {
      return found.verifiedBy === wrappingKey().id && found.owner?.isChosen === owner.isChosen;
    },
    get movesWrappingKey() {
      return found.verifiedBy !== undefined && found.verifiedBy !== wrappingKey().id;
    },
    wrap: (kid, privateJwk) => wrapping(owner).wrap(kid, privateJwk),
    unwrap(kid, jwe) {
      // While a store passes to another issuer, some private keys are still bound to the former one.
      const bound = [owner, found.owner ?? owner].find((owner) => headerOf(jwe)?.["iss"] === bindingOf(owner));
      return wrapping(bound ?? owner).unwrap(kid, jwe);
    },
    isCurrent: (jwe) => wrapping(owner).isCurrent(jwe),

    async noteIssuer(issuer) {
      for (let attempt = 1; ; attempt += 1) {
        const { revision, records } = await load();
        if (owner.isChosen || owner.issuer === issuer || records.length === 0) return;
        try {
          await commitFor({ issuer, isChosen: false }, revision, records, []);
          return;
        } catch (error) {
          if (codeOf(error) !== "ERR_STORE_CONFLICT" || attempt === maxAttempts) throw error;
        }
      }
    },
  };
}

const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null;

const isRecord = (value: unknown): boolean =>
  isObject(value) &&
  typeof value["kid"] === "string" &&
  (value["privateHalf"] === undefined || isObject(value["privateHalf"]));

/** Checks the members that are read before the records are known to be authentic. */
function checkShape({ records }: Committed): void {
  if (!records.every(isRecord)) throw notAuthentic("one of its records is none");
}

function checkNotOlder({ revision }: Committed, seen: number): void {
  if (revision >= seen) return;
  throw new StoreError(
    "ERR_RECORDS_INVALID",
    `the store is at revision ${revision}, and was at ${seen}: it is empty, or an older copy; put the newest one back, or restart to go on with this one`,
  );
}
