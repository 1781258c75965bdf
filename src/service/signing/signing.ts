import type { Clock } from "../../base/clock.ts";
import type { Metric } from "../../base/metrics.ts";
import type { Keyset } from "../../keys/keyset/keyset.ts";
import { type PayloadProvider, createPayloadProvider } from "../../library/provider/provider.ts";
import { publishedKeys } from "../../rotation/rules/records.ts";
import type { KeyRecord } from "../../rotation/store/store.ts";

/** What sockets sign with. */
export interface Signing extends Pick<PayloadProvider, "sign" | "signPayload"> {
  /** @throws SignerError `ERR_SIGNER_FENCED` where nothing may be signed now */
  checkMaySign(this: void): void;
  /** Records of the signing keys that are published, the active one first. */
  published(this: void): readonly KeyRecord[];
  /** When they were taken from the store, in epoch milliseconds. */
  takenAt(this: void): number;
}

/** What a key manager gives, beside its keysets. */
interface Managed {
  readonly maxTokenLifetimeSeconds: number;
  /** @throws SignerError `ERR_SIGNER_FENCED` */
  readonly checkMaySign: (kid: string) => void;
  readonly records: () => readonly KeyRecord[];
  readonly clock: Clock;
}

/** Signs with the keys of a manager, through a provider. `update` gives it each keyset once that is published. */
export async function createSigning(issuer: string, keyset: Keyset, { records, ...managed }: Managed) {
  const { checkMaySign, clock } = managed;
  const provider = await createPayloadProvider({ issuer, keyset, discovery: false, ...managed });
  let activeKid = keyset[0]?.keyId ?? "";
  let takenAt = clock.now();
  return {
    sign: provider.sign,
    signPayload: provider.signPayload,
    checkMaySign: () => checkMaySign(activeKid),
    published: () => publishedKeys(records(), "sig"),
    takenAt: () => takenAt,
    async update(keyset: Keyset): Promise<void> {
      await provider.update({ keyset });
      activeKid = keyset[0]?.keyId ?? "";
      takenAt = clock.now();
    },
    /** Of its signatures, since this provider serves no documents. */
    metrics: (): readonly Metric[] => provider.metrics().filter(({ name }) => name.startsWith("jwksd_signature")),
  } satisfies Signing & Record<string, unknown>;
}
