import type { Clock } from "../../base/clock.ts";
import type { Metric } from "../../base/metrics.ts";
import type { Keyset } from "../../keys/keyset/keyset.ts";
import type { ManagedKeys } from "../../library/provider/managed-keys.ts";
import { createPayloadProvider } from "../../library/provider/provider.ts";
import type { PayloadProvider } from "../../library/provider/types.ts";
import { type KeyRecord, type LiveRecord, publishedKeys } from "../../rotation/rules/records.ts";

/** What sockets sign with. */
export interface Signing extends Pick<PayloadProvider, "sign" | "signPayload"> {
  /** @throws SignerError `ERR_SIGNER_STALE` where nothing may be signed now */
  checkMaySign(this: void): void;
  /** Records of the signing keys that are published, the active one first. */
  published(this: void): readonly LiveRecord[];
  /** When they were taken from the store, in epoch milliseconds. */
  takenAt(this: void): number;
  /** How long a token may live, by the policy of the store. */
  maxTokenLifetimeSeconds(this: void): number;
}

/** The signing of a manager that has reached its store. */
export interface ManagedSigning extends Signing {
  /** Takes a keyset once it is published. */
  update(keyset: Keyset): Promise<void>;
  /** The metrics of signatures alone, because its provider serves no documents. */
  metrics(): readonly Metric[];
}

/** What sockets need of a key manager. */
export interface SignedFor extends Pick<ManagedKeys, "keysets" | "maxTokenLifetimeSeconds" | "permit" | "endOf"> {
  readonly records: readonly KeyRecord[];
}

/** Signs with the keys of a manager, through a provider. `update` gives it each keyset once that is published. */
export async function createSigning(issuer: string, manager: SignedFor, clock: Clock): Promise<ManagedSigning> {
  const { keyset } = manager.keysets;
  const provider = await createPayloadProvider({
    keys: {
      issuer,
      keysets: { keyset, encryptionKeyset: [] },
      isRotating: false,
      get maxTokenLifetimeSeconds() {
        return manager.maxTokenLifetimeSeconds;
      },
      permit: (kid) => manager.permit(kid),
      endOf: (kid) => manager.endOf(kid),
      // The keys are updated once they are published.
      subscribe: async () => {},
    },
    discovery: false,
    clock,
  });
  let activeKid = keyset[0]?.kid ?? "";
  let takenAt = clock.now();
  return {
    sign: provider.sign,
    signPayload: provider.signPayload,
    checkMaySign: () => manager.permit(activeKid)(),
    published: () => publishedKeys(manager.records, "sig"),
    takenAt: () => takenAt,
    maxTokenLifetimeSeconds: () => manager.maxTokenLifetimeSeconds,
    async update(keyset) {
      await provider.update({ keyset });
      activeKid = keyset[0]?.kid ?? "";
      takenAt = clock.now();
    },
    metrics: () => provider.metrics().filter(({ name }) => name.startsWith("jwksd_signature")),
  };
}
