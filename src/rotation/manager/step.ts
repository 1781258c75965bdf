import type { JwksdError } from "../../base/errors.ts";
import { asJwksdError } from "../../base/errors.ts";
import { type Advance, type Change, advance } from "../rules/advance.ts";
import { announce } from "../rules/commands.ts";
import { activeKey, announcedKey, nextAlg, uriOf } from "../rules/records.ts";
import { announceNext, leaseNext, reasonForNext } from "../rules/successor.ts";
import { noteWaits } from "../rules/waits.ts";
import type { KeyRecord, LeaseSeen } from "../store/store.ts";
import type { Custody } from "../custody/custody.ts";
import type { Changed, Decision, Seen } from "./compare-and-set.ts";
import { CannotSign, type Keyring } from "./keyring.ts";
import { makeLocalKey } from "./make-key.ts";
import { rewrap } from "../custody/rewrap.ts";

/** The plan for the records of a store, and the leases on which the plan relies: they have to be unchanged at the commit. */
export interface Planned extends Advance {
  readonly leases?: readonly LeaseSeen[] | undefined;
}

/** What the caller of a step provides. */
export interface Caller {
  /** Plans what is due: `advance`, with what the caller knows of time and of the replicas. */
  plan(records: readonly KeyRecord[], seen: Seen): Promise<Planned>;
  /** Is called for a key that cannot sign when its wait is over. The next plan leaves the step of that key out. */
  holdBack(kid: string, error: JwksdError): void;
  /** Takes the records into use that were found or committed. Resolves to whether the replicas learned something, so that more may be due. */
  publish(change: Changed): Promise<boolean>;
  /** Is called for an external key that no record names. */
  orphaned(uri: string, isDestroyed: boolean): void;
}

interface Options {
  readonly custody: Custody;
  readonly keyring: Keyring;
  /** The id by which a record names the process that makes the next external key. */
  readonly maker: string;
  readonly caller: Caller;
}

/**
 * Does all that is due: loads, plans, makes the next key, commits and publishes; again, until nothing is due. It has no timer, no lease and no
 * clock of its own.
 *
 * @returns the change that was published last
 * @throws what `Keyring.change` and the caller throw
 */
export async function step(options: Options): Promise<Changed> {
  const { keyring, caller } = options;
  for (;;) {
    const change = await takeDue(options);
    const isMore = await caller.publish(change);
    const made = keyring.createSigner === undefined ? undefined : await makeExternalKey(options, change);
    if (made !== undefined) await caller.publish(made);
    else if (!isMore) return change;
  }
}

/** Whether a record names this maker for the next key, and the key is not announced yet. */
export function isMakingNext(records: readonly KeyRecord[], maker: string): boolean {
  return activeKey(records, "sig")?.successorLease?.by === maker && announcedKey(records, "sig") === undefined;
}

/** Takes all that is due in the store. Keys that cannot sign are held back. */
async function takeDue({ custody, keyring, caller }: Options): Promise<Changed> {
  let found: Changed | undefined;
  for (;;) {
    try {
      return await keyring.change(async (records, _now, seen) => {
        found = { records, events: [], before: records, seen, revision: seen.revision };
        return due(records, seen, { custody, keyring, caller });
      });
    } catch (error) {
      if (error instanceof CannotSign) {
        caller.holdBack(error.kid, asJwksdError(error.cause));
        continue;
      }
      // Changes of other replicas are taken over, even if this one cannot write.
      if (found !== undefined && found.records.length > 0) await caller.publish(found);
      throw error;
    }
  }
}

/** The records after all steps that are due. Makes the new keys, unless they belong in an HSM or key service. */
async function due(
  stored: readonly KeyRecord[],
  seen: Seen,
  { custody, keyring, caller }: Omit<Options, "maker">,
): Promise<Decision> {
  const { now } = seen;
  const own: Change = custody.isTaking
    ? await rewrap(stored, custody, now, `the issuer ${JSON.stringify(custody.owner.issuer)} was chosen`)
    : { records: stored, events: [] };
  const planned = await caller.plan(own.records, seen);
  let change: Change = { records: planned.records, events: [...own.events, ...planned.events] };
  for (const use of planned.due) {
    if (use === "sig" && keyring.createSigner !== undefined) continue;
    const key = await makeLocalKey(use, nextAlg(change.records, use), custody);
    change = announce(change, key, now, reasonForNext(change.records.length === 0));
  }
  const records = noteWaits(change.records, keyring.policy, { announces: true });
  return { ...change, records, leases: planned.leases };
}

/** Makes the next signing key in its HSM or key service, if it is due. One replica makes it, so that no surplus keys are left there. */
async function makeExternalKey(
  { keyring, maker, caller }: Options,
  { records, seen: { now } }: Changed,
): Promise<Changed | undefined> {
  const { policy } = keyring;
  if (!advance(records, policy, now).due.includes("sig")) return undefined;
  // For the first key, no record exists that could name a maker.
  if (records.length > 0) {
    const leased = await keyring.change((stored, now) => leaseNext(stored, maker, policy, now));
    if (leased.records === leased.before) return undefined;
  }
  const key = await keyring.makeKey("sig", "ES256");
  const uri = uriOf(key) as string;
  let known = records;
  // A commit may have been written although the store reported a failure.
  let isUncertain = false;
  try {
    const change = await keyring.change((stored, now) => {
      [known, isUncertain] = [stored, true];
      return announceNext(stored, key, policy, now);
    });
    [known, isUncertain] = [change.records, false];
    return change;
  } finally {
    if (!known.some((record) => uriOf(record) === uri))
      caller.orphaned(uri, !isUncertain && (await keyring.destroyUnrecorded(uri)));
  }
}
