import { asJwksdError } from "../../base/errors.ts";
import { type Change, advance } from "../rules/advance.ts";
import { announce } from "../rules/commands.ts";
import type { RotationPolicy } from "../rules/policy.ts";
import { activeKey, announcedKey, nextAlg, uriOf } from "../rules/records.ts";
import { announceNext, leaseNext, reasonForNext } from "../rules/successor.ts";
import { noteWaits } from "../rules/waits.ts";
import type { KeyRecord, Snapshot } from "../store/store.ts";
import type { Clocks } from "./clocks.ts";
import type { Changed, Decision } from "./compare-and-set.ts";
import { CannotSign, type Keyring } from "./keyring.ts";
import type { KeysInUse } from "./keys-in-use.ts";
import { makeLocalKey } from "./make-key.ts";
import type { Replica } from "./replica.ts";
import { rewrap } from "./rewrap.ts";
import type { Schedule } from "./schedule.ts";
import type { ManagerEvent } from "./types.ts";
import type { Vault } from "../custody/vault.ts";

interface Parts {
  readonly policy: RotationPolicy;
  readonly vault: Vault;
  readonly keyring: Keyring;
  readonly replica: Replica;
  readonly clocks: Clocks;
  readonly schedule: Schedule;
  readonly inUse: KeysInUse;
  readonly emit: (event: ManagerEvent) => void;
}

/** The steps of the plan, as one replica takes them in the store. */
export function createSteps({ policy, vault, keyring, replica, clocks, schedule, inUse, emit }: Parts) {
  /** By what a record names the replica that makes the next external key. */
  const managerId = crypto.randomUUID();

  /** The records after all that is due now, with the next keys where they are made in memory. */
  async function due(stored: readonly KeyRecord[], now: number, snapshot: Snapshot): Promise<Decision> {
    const { counted, over } = clocks.look(snapshot);
    for (const lease of over) await replica.end(lease);
    const own: Change = vault.isTaking
      ? await rewrap(stored, vault, now, `the issuer ${JSON.stringify(vault.owner.issuer)} was chosen`)
      : { records: stored, events: [] };
    schedule.forgetTaken(own.records, now);
    const ahead = schedule.plan(own.records, now, { revision: snapshot.revision, leases: counted });
    let change: Change = { records: ahead.records, events: [...own.events, ...ahead.events] };
    for (const use of ahead.due) {
      if (use === "sig" && keyring.createSigner !== undefined) continue;
      const key = await makeLocalKey(use, nextAlg(change.records, use), vault);
      change = announce(change, key, now, reasonForNext(change.records.length === 0));
    }
    const records = noteWaits(change.records, policy, { announces: true });
    const leases = snapshot.leases.filter((lease) => !over.includes(lease));
    return { ...change, records, ...(ahead.reliesOnReplicas && { leases }) };
  }

  /** Whether this replica is the one that makes the next key. */
  async function leaseNextKey(): Promise<boolean> {
    const { before, records } = await keyring.change((stored, now) => leaseNext(stored, managerId, policy, now));
    return records !== before;
  }

  return {
    /** Whether the next key was left to this replica, and is not announced yet. */
    get isMaking(): boolean {
      const { records } = inUse.state;
      return activeKey(records, "sig")?.successorLease?.by === managerId && announcedKey(records, "sig") === undefined;
    },

    /** Takes all that is due in the store. @throws what `keyring.change` throws, but for keys that cannot sign: they are held back */
    async take(): Promise<Changed> {
      let stored: Changed | undefined;
      for (;;) {
        try {
          return await keyring.change((records, now, snapshot) => {
            stored = { records, events: [], before: records, now, revision: snapshot.revision };
            return due(records, now, snapshot);
          });
        } catch (error) {
          if (error instanceof CannotSign) {
            schedule.holdBack(error.kid);
            emit({ type: "held-back", kid: error.kid, error: asJwksdError(error.cause) });
            continue;
          }
          // What others did counts, even if this replica cannot write.
          if (stored !== undefined && stored.records.length > 0) await inUse.adopt(stored);
          throw error;
        }
      }
    },

    /** Makes the next signing key in its HSM or key service, if it is due. One replica does, so that no others are left over there. */
    async makeExternalKey(): Promise<void> {
      const { records } = inUse.state;
      if (!advance(records, policy, clocks.now()).due.includes("sig")) return;
      // There is no record yet that could bear a lease for the first key.
      if (records.length > 0 && !(await leaseNextKey())) return;
      const key = await keyring.makeKey("sig", "ES256");
      const uri = uriOf(key) as string;
      let known = records;
      // A store that fails may have taken it all the same.
      let isUncertain = false;
      try {
        const change = await keyring.change((stored, now) => {
          [known, isUncertain] = [stored, true];
          return announceNext(stored, key, policy, now);
        });
        [known, isUncertain] = [change.records, false];
        await inUse.adopt(change);
      } finally {
        if (!known.some((record) => uriOf(record) === uri))
          emit({ type: "orphaned", uri, isDestroyed: !isUncertain && (await keyring.destroyUnrecorded(uri)) });
      }
    },
  };
}
