import { signBeside } from "./sign-beside.ts";
import type { Clock } from "../../base/clock.ts";
import { checkSigning, type Keyset } from "../../keys/keyset/keyset.ts";
import type { Metric } from "../../base/metrics.ts";
import { createActiveKeys } from "../../library/provider/active-keys.ts";
import { publishedKeys } from "../../rotation/rules/records.ts";
import type { KeyRecord } from "../../rotation/store/store.ts";
import type { ActiveKey } from "../../library/token/sign.ts";

/** The keys of a service for those who sign through it. */
export interface SigningKeys {
  /** The key that signs now, kid and signer as one. @throws SignerError `ERR_SIGNER_FENCED` */
  active(this: void): ActiveKey;
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

/** Takes the signing keys of a manager: once, before anybody signs, and with every change. */
export async function createSigningKeys(keyset: Keyset, managed: Managed) {
  const activeKeys = createActiveKeys({ ...managed, signByKey: signBeside });
  let active = activeKeys.of(await checkSigning(keyset));
  let takenAt = managed.clock.now();
  return {
    active() {
      managed.checkMaySign(active.kid);
      return active;
    },
    published: () => publishedKeys(managed.records(), "sig"),
    takenAt: () => takenAt,
    async update(keyset: Keyset): Promise<void> {
      active = activeKeys.of(await checkSigning(keyset));
      takenAt = managed.clock.now();
      activeKeys.keep(keyset.map(({ keyId }) => keyId));
    },
    metrics: (): readonly Metric[] => activeKeys.metrics(),
  } satisfies SigningKeys & Record<string, unknown>;
}
