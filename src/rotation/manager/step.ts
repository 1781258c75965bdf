import { type JwksdError, asJwksdError } from "../../base/errors.ts";
import type { Advance, Change } from "../rules/advance.ts";
import { announce } from "../rules/commands.ts";
import { type KeyRecord, nextAlg } from "../rules/records.ts";
import { announceNext, leaveNextTo, reasonForNext } from "../rules/successor.ts";
import type { Custody } from "../custody/custody.ts";
import { rewrap } from "../custody/rewrap.ts";
import { CannotSign, type Keyring } from "./keyring.ts";
import { makeLocalKey } from "./make-key.ts";
import type { Changed, Decision, Seen } from "./store-access.ts";

/** What the caller of a step provides. */
export interface Caller {
  /** What is due by `advance`, with what the caller knows of time; `undefined` where its clock is wrong, and it takes no step. */
  plan(records: readonly KeyRecord[], seen: Seen): Advance | undefined;
  /** Is called for a key that cannot sign when its wait is over. The next plan leaves the step of that key out. */
  holdBack(kid: string, error: JwksdError): void;
  /** Takes the keys into use that were found or committed. */
  publish(change: Changed): Promise<void>;
}

export interface StepOptions {
  readonly custody: Custody;
  readonly keyring: Keyring;
  /** The id by which a record names the process that makes the next external key. */
  readonly process: string;
  readonly caller: Caller;
}

/**
 * Does all that is due: reads, plans, makes the next key, commits and publishes; again, until a read finds nothing to do. It has no timer and
 * no clock of its own.
 *
 * @throws what `Keyring.change` and the caller throw
 */
export async function step(options: StepOptions): Promise<void> {
  const { keyring, caller } = options;
  for (;;) {
    const change = await takeDue(options);
    await caller.publish(change);
    const made = keyring.createSigner === undefined ? undefined : await makeExternalKey(options, change);
    if (made !== undefined) await caller.publish(made);
    else if (change.document === change.seen.document) return;
  }
}

/** Takes all that is due in the store. Keys that cannot sign are held back. */
async function takeDue({ custody, keyring, caller }: StepOptions): Promise<Changed> {
  let found: Changed | undefined;
  for (;;) {
    try {
      return await keyring.change((seen) => {
        const { document } = seen;
        found = { seen, document, before: document.records, records: document.records, events: [] };
        return due(seen, { custody, keyring, caller });
      });
    } catch (error) {
      if (error instanceof CannotSign) {
        caller.holdBack(error.kid, asJwksdError(error.cause));
        continue;
      }
      // Changes of other processes are taken over, even if this one cannot write.
      if (found !== undefined && found.records.length > 0) await caller.publish(found);
      throw error;
    }
  }
}

/** All steps that are due. Makes the new keys, unless they belong in an HSM or key service. */
async function due(seen: Seen, { custody, keyring, caller }: Omit<StepOptions, "process">): Promise<Decision> {
  const { document, now } = seen;
  const own: Change = custody.movesIssuer
    ? await rewrap(document.records, custody, now, `the issuer ${JSON.stringify(custody.owner.issuer)} was chosen`)
    : { records: document.records, events: [] };
  const planned = caller.plan(own.records, seen);
  if (planned === undefined) return {};
  let change: Change = { records: planned.records, events: [...own.events, ...planned.events] };
  for (const use of planned.due) {
    if (use === "sig" && keyring.createSigner !== undefined) continue;
    const key = await makeLocalKey(use, nextAlg(change.records, use), custody);
    change = announce(change, key, now, reasonForNext(change.records.length === 0));
  }
  return change;
}

/** Makes the next signing key in its HSM or key service, if it is due. One process makes it, so that no surplus keys are left there. */
async function makeExternalKey(
  { keyring, process, caller }: StepOptions,
  { records, seen }: Changed,
): Promise<Changed | undefined> {
  if (caller.plan(records, seen)?.due.includes("sig") !== true) return undefined;
  // For the first key, no record exists that could name its maker.
  if (records.length > 0) {
    const left = await keyring.change(({ document, now }) => ({
      records: leaveNextTo(process, document.records, document.policy, now),
    }));
    if (left.records === left.before) return undefined;
  }
  const key = await keyring.makeKey("sig", "ES256");
  return keyring.change(({ document, now }) => announceNext(document.records, key, document.policy, now), key);
}
