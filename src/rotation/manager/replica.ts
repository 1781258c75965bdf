import { type Clock, type Instant, instantNow, longestSince } from "../../base/clock.ts";
import { SignerError, StoreError } from "../../base/errors.ts";
import type { KeyStore, Lease, StoreCall } from "../store/store.ts";
import type { Clocks } from "./clocks.ts";
import type { ReplicaSettings } from "../rules/replica-settings.ts";
import { ofStore } from "./compare-and-set.ts";
import type { OnCall } from "./health.ts";
import type { ManagerEvent } from "./types.ts";

/** What a lease says of a replica: the revision that it publishes, and the kids that it may sign with. */
export interface LeaseContent {
  readonly publishes: number;
  readonly signsWith: readonly string[];
}

/** The part of a lease that a replica does not use, because clocks run at different rates. */
const margin = 0.01;
/**
 * How long a new lease lasts at most, in milliseconds, until its replica first reports. The others wait for a lease that says nothing yet, and a
 * process that is started again and again, and dies each time, would keep them waiting for ever.
 */
const firstLeaseMs = 120_000;
/** How many times a lease is renewed within its length. */
export const renewals = 6;

export const nothing: LeaseContent = { publishes: 0, signsWith: [] };

/** What the lease of a process, or of a copy, is made with. */
export interface LeaseOptions {
  readonly name: string;
  readonly settings: ReplicaSettings;
  readonly leaseMs: number;
  readonly clock: Clock;
  readonly signal: AbortSignal;
  readonly onCall?: OnCall | undefined;
}

/**
 * The lease by which the others rely on this process. For this process the lease ends earlier than for the others: its time counts from
 * when the last confirmed renewal was sent, by the monotonic clock or the wall clock, whichever has moved further.
 */
export function createReplica(store: KeyStore, { name, settings, leaseMs, clock, signal, onCall }: LeaseOptions) {
  let id: string | undefined;
  /** The id of an earlier lease, which is not used any more and may still be in the store. */
  let former: string | undefined;
  let lastReported = nothing;
  /** The kids that this process may sign with: the store has confirmed them, and no later report leaves them out. */
  let signsWith: readonly string[] = [];
  let serial = 0;
  let confirmed: Instant | undefined;
  /** How long the lease lasts from `confirmed` on. */
  let lastsMs = leaseMs;

  function forget(): void {
    [id, lastReported, signsWith, confirmed] = [undefined, nothing, [], undefined];
  }

  const elapsedMs = (): number => (confirmed === undefined ? Infinity : longestSince(confirmed, clock));
  const holds = (): boolean => elapsedMs() < lastsMs * (1 - margin);

  return {
    get id() {
      return id;
    },
    get lastReported() {
      return lastReported;
    },

    /** The kids that this process may sign with while the others rely on it. */
    get signsWith() {
      return signsWith;
    },

    /** Whether the others still rely on this process. */
    get holds() {
      return holds();
    },

    /** Whether the others rely on this process, and it has reported that it publishes a set. */
    get isReady() {
      return holds() && lastReported.publishes > 0;
    },

    /** When the next renewal is due, in milliseconds from now. */
    get renewInMs() {
      return Math.max(lastsMs / renewals - elapsedMs(), 0);
    },

    /** Makes a lease, unless this process holds one. A new lease says that nothing is published, so the keys are loaded only after it. */
    async join(): Promise<void> {
      if (id !== undefined && elapsedMs() < lastsMs) return;
      former = id ?? former;
      forget();
      if (former !== undefined) await endLease(store, former, { clock, signal, onCall });
      const [next, sent, forMs] = [crypto.randomUUID(), instantNow(clock), Math.min(leaseMs, firstLeaseMs)];
      former = next;
      const join = (signal: AbortSignal): Promise<void> =>
        store.join({ id: next, name, settings: { ...settings } }, forMs, { signal });
      await ofStore("join", join, { clock, signal, onCall });
      [id, former, confirmed, lastsMs] = [next, undefined, sent, forMs];
    },

    /**
     * Renews the lease, and says what this process does now. If this fails, the last report stays in force, but for the kids that this one
     * leaves out: it may have arrived, so this process signs with them no more from the moment in which it is sent.
     *
     * @param ifRevision changes nothing unless the store is at this revision. Without it, this process begins to sign with no kid: the others
     * may count on a key not being used any more
     * @returns the revision of the store
     * @throws StoreError `ERR_LEASE_ENDED`, `ERR_STORE_CONFLICT`, `ERR_STORE_UNAVAILABLE`
     */
    async report(next: LeaseContent, ifRevision?: number): Promise<number> {
      if (id === undefined) throw new StoreError("ERR_LEASE_ENDED", "this replica has no lease; it joins again");
      const [lease, sent] = [{ id, ...next }, instantNow(clock)];
      signsWith = signsWith.filter((kid) => next.signsWith.includes(kid));
      try {
        // A renewal that was given up may still arrive after this one. The store compares their numbers.
        serial += 1;
        const options = { ifRevision, serial };
        const renew = (signal: AbortSignal): Promise<number> => store.renew(lease, leaseMs, { ...options, signal });
        const revision = await ofStore("renew", renew, { clock, signal, onCall });
        [lastReported, confirmed, lastsMs] = [next, sent, leaseMs];
        if (ifRevision !== undefined) signsWith = next.signsWith;
        return revision;
      } catch (error) {
        if (error instanceof StoreError && error.code === "ERR_LEASE_ENDED") {
          former = id;
          forget();
        }
        throw error;
      }
    },

    /** @throws SignerError `ERR_SIGNER_FENCED` if the lease does not say that this process signs with the key */
    checkMaySign(kid: string): void {
      if (!signsWith.includes(kid)) throw fenced(`its lease does not say that it signs with ${JSON.stringify(kid)}`);
    },

    /** Ends the lease of another replica, unless that replica has renewed it meanwhile. */
    end: ({ id, serial }: Lease): Promise<void> => endLease(store, id, { ifSerial: serial, clock, signal, onCall }),

    /**
     * Ends the lease, so that nobody waits for this process. If the store is out of reach, the lease runs out by itself.
     *
     * @param onLeft is called if a lease that others have seen could not be ended
     */
    async leave(onLeft: (error: unknown, until: number) => void): Promise<void> {
      const left = id ?? former;
      const until = confirmed === undefined ? undefined : clock.now() + lastsMs - elapsedMs();
      forget();
      if (left === undefined) return;
      await endLease(store, left, { clock, onCall }).catch((error: unknown) => {
        if (until !== undefined) onLeft(error, until);
      });
    },
  };
}

/** The lease of this process, as its manager uses it. */
export type Replica = ReturnType<typeof createReplica>;

/** Why a process may not sign: its lease has ended, or its clock is wrong. */
export function createFence({ replica, clocks, signs, signal, emit }: FenceParts) {
  let error: SignerError | undefined;
  return {
    get error() {
      return error;
    },
    /** Looks again, and tells whether that has changed. */
    note(): boolean {
      const before = error;
      error = replica.holds ? (signs ? clocks.fault : undefined) : leaseEnded(signal);
      if (error?.message === before?.message || signal.aborted) return false;
      emit(error === undefined ? { type: "unfenced" } : { type: "fenced", error });
      return true;
    },
  };
}

export type Fence = ReturnType<typeof createFence>;

interface FenceParts {
  readonly replica: Replica;
  readonly clocks: Pick<Clocks, "fault">;
  readonly signs: boolean;
  readonly signal: AbortSignal;
  readonly emit: (event: ManagerEvent) => void;
}

/** Ends a lease; with `ifSerial`, only if its last renewal has this number. */
export function endLease(
  store: KeyStore,
  id: string,
  { ifSerial, ...options }: Pick<LeaseOptions, "clock" | "onCall"> & StoreCall & { readonly ifSerial?: number },
): Promise<void> {
  return ofStore("leave", (signal) => store.leave(id, { ifSerial, signal }), options);
}

function leaseEnded({ aborted }: AbortSignal): SignerError {
  if (aborted) return fenced("its key manager was closed");
  const text = "this replica does not sign, because its lease has ended and the others no longer rely on it";
  return new SignerError("ERR_SIGNER_FENCED", `${text}; it signs again when it reaches the store`);
}

export function fenced(why: string): SignerError {
  return new SignerError("ERR_SIGNER_FENCED", `this replica does not sign now: ${why}`);
}
