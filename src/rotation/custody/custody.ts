import { StoreError, codeOf } from "../../base/errors.ts";
import type { CommitOptions, Committed, KeyEvent, KeyRecord, KeyStore, Snapshot, StoreCall } from "../store/store.ts";
import { type Owner, type IssuerCheck, bindingOf, checkTaking, ownerOfBinding } from "./issuer-check.ts";
import { liveRecords, jweOf } from "../rules/records.ts";
import { claimedOwner, makeSeal, notAuthentic, openSeal } from "./seal.ts";
import { type Wrapping, type WrappingKeys, createWrapping, headerOf } from "./wrapping.ts";

/**
 * A store as far as it can be believed: loading verifies the seal, committing makes it. Wraps and unwraps the private keys of its
 * owner.
 */
export interface Custody extends Wrapping {
  /** @throws besides, on loading: StoreError `ERR_STORE_NOT_AUTHENTIC`, `ERR_STORE_ISSUER`, `ERR_WRAPPING_KEY_MISSING` */
  readonly store: KeyStore;
  /** Whose keys they are, since it was last loaded. */
  readonly owner: Owner;
  /** Whether what was last loaded was authenticated, or had no keys. Not so of a store from before there were seals. */
  readonly isVerified: boolean;
  /** Whether the private keys are to be bound to another issuer than they are. */
  readonly isTaking: boolean;
  /** Whether it is sealed as a commit would seal it: for its owner, under the first wrapping key. */
  readonly isSealCurrent: boolean;
  /** Remembers where keys are served for which no issuer was chosen. */
  noteIssuer(issuer: string): Promise<void>;
}

export interface CustodyOptions {
  readonly store: KeyStore;
  readonly keys: WrappingKeys;
  readonly issuerCheck: IssuerCheck;
  /** Seals a store that has no seal. Default: such a store stays as it is. */
  readonly seals?: boolean | undefined;
  /** Whether records that cannot be believed are taken as they are. Default: never. */
  readonly accepts?: ((problem: StoreError, snapshot: Committed) => boolean) | undefined;
}

/** What is known of what was loaded. */
interface Found {
  /** `undefined` for a store without keys. */
  readonly owner: Owner | undefined;
  /** Whether it is to have a seal. */
  readonly isSealed: boolean;
  /** The id of the wrapping key under which the seal was verified. */
  readonly verifiedBy?: string;
}

const maxAttempts = 20;
const empty: Found = { owner: undefined, isSealed: true };

export function createCustody({
  store,
  keys,
  issuerCheck,
  seals = false,
  accepts = () => false,
}: CustodyOptions): Custody {
  let found = empty;
  /** Whose keys they will be when they are committed. */
  let owner = issuerCheck(undefined);
  /** What nobody can take back who has no wrapping key, as long as this process lives. */
  let seen = { revision: 0, isSealed: false };

  const isSealing = (): boolean => found.isSealed || seals;
  const wrapping = (owner: Owner): Wrapping => createWrapping(keys, bindingOf(owner), isSealing());

  async function load(options?: StoreCall): Promise<Snapshot> {
    // As it was before it asked: another commit of this process may come before the answer.
    const before = seen;
    const snapshot = await store.load(options);
    checkShape(snapshot);
    checkNotOlder(snapshot, before.revision);
    const next = await examine(snapshot, before.isSealed).catch(async (problem: unknown) => {
      if (problem instanceof StoreError && accepts(problem, snapshot)) return guess(snapshot);
      throw problem;
    });
    const nextOwner = issuerCheck(next.owner);
    if (!next.isSealed && !seals) checkTaking(next.owner, nextOwner);
    [found, owner] = [next, nextOwner];
    saw(snapshot.revision, snapshot.seal !== undefined);
    return snapshot;
  }

  /** @throws StoreError `ERR_STORE_NOT_AUTHENTIC`, `ERR_WRAPPING_KEY_MISSING` */
  async function examine(snapshot: Committed, mustBeSealed: boolean): Promise<Found> {
    const { records, seal } = snapshot;
    if ((seal ?? undefined) !== undefined) return { ...(await openSeal(keys, snapshot)), isSealed: true };
    if (mustBeSealed) throw notAuthentic("its seal is gone");
    if (records.length === 0) return empty;
    // From before there were seals, a private key shows that: it was wrapped for a store without one. Nobody can make such a key who has
    // no wrapping key, and none was ever made for a store that has had a seal from the beginning.
    const owner = await ownerOfWrapped(records, ({ sealed }) => sealed === undefined);
    if (owner === undefined) throw notAuthentic("it has no seal, and nothing in it shows that it never had one");
    return { owner, isSealed: false };
  }

  /** Of records that were taken as they are. */
  async function guess(snapshot: Committed): Promise<Found> {
    const wanted = issuerCheck(undefined);
    const wrapped = await ownerOfWrapped(snapshot.records, () => true).catch(() => undefined);
    const owner = wrapped ?? (wanted.isChosen ? wanted : claimedOwner(snapshot));
    // A private key that is wrapped as for a store without a seal would let the seal be taken off from then on.
    return { owner, isSealed: true };
  }

  /** To whom private keys are bound, which is certain where one can be unwrapped. @throws StoreError `ERR_WRAPPING_KEY_MISSING` */
  async function ownerOfWrapped(
    records: readonly KeyRecord[],
    isEvidence: (header: Readonly<Record<string, unknown>>) => boolean,
  ): Promise<Owner | undefined> {
    let missing: StoreError | undefined;
    for (const record of liveRecords(records)) {
      const jwe = jweOf(record);
      const header = jwe === undefined ? undefined : headerOf(jwe);
      if (jwe === undefined || typeof header?.["iss"] !== "string" || !isEvidence(header)) continue;
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
    const isSealed = isSealing();
    const seal = isSealed ? await makeSeal(keys[0], owner, expectedRevision + 1, records) : undefined;
    const revision = await store.commit(expectedRevision, records, events, { ...options, seal });
    found = { owner, isSealed, ...(isSealed && { verifiedBy: keys[0].id }) };
    saw(revision, isSealed);
    return revision;
  }

  function saw(revision: number, isSealed: boolean): void {
    seen = { revision: Math.max(seen.revision, revision), isSealed: seen.isSealed || isSealed };
  }

  return {
    store: {
      load,
      commit: (...args) => commitFor(owner, ...args),
      // Nothing that is decided from leases makes a key believed, so they need no seal.
      join: (...args) => store.join(...args),
      renew: (...args) => store.renew(...args),
      leave: (...args) => store.leave(...args),
      events: (options) => store.events(options),
      watch: (onChange, options) => store.watch(onChange, options),
      close: () => store.close(),
    },
    get owner() {
      return owner;
    },
    get isVerified() {
      return found === empty || found.verifiedBy !== undefined;
    },
    get isTaking() {
      return found.owner !== undefined && found.owner.isChosen !== owner.isChosen;
    },
    get isSealCurrent() {
      return found.verifiedBy === keys[0].id && found.owner?.isChosen === owner.isChosen;
    },
    wrap: (kid, privateJwk) => wrapping(owner).wrap(kid, privateJwk),
    unwrap(kid, jwe) {
      // While another issuer is taken, some are still bound to the one before.
      const bound = [owner, found.owner ?? owner].find((owner) => headerOf(jwe)?.["iss"] === bindingOf(owner));
      return wrapping(bound ?? owner).unwrap(kid, jwe);
    },
    isCurrent: (jwe) => wrapping(owner).isCurrent(jwe),

    async noteIssuer(issuer) {
      for (let attempt = 1; ; attempt += 1) {
        const { revision, records } = await load();
        if (owner.isChosen || owner.issuer === issuer || !found.isSealed || records.length === 0) return;
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

/** What is read here before it is known to be authentic. */
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
