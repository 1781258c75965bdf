import type { Clock } from "../../base/clock.ts";
import type { CheckedSigning } from "../../publish/keyset.ts";
import type { ServiceManager } from "../../rotation/manager/manager.ts";
import { createTokenSigner } from "../../sign/token/token-signer.ts";
import { publishedKeys } from "../../rotation/rules/records.ts";

/** What sockets sign with. */
export type Signing = Omit<ManagedSigning, "take" | "metrics">;

/** The signing of a manager that has reached its store. */
export type ManagedSigning = ReturnType<typeof createSigning>;

/** Signs with the keys of a manager. `take` gives it each keyset once that is published. */
export function createSigning(
  issuer: string,
  manager: Pick<ServiceManager, "maxTokenLifetimeSeconds" | "permit" | "records">,
  first: CheckedSigning,
  clock: Clock,
) {
  const maxTokenLifetimeSeconds = (): number => manager.maxTokenLifetimeSeconds;
  const permit = (kid: string): (() => void) => manager.permit(kid);
  const signer = createTokenSigner({ issuer, clock, maxTokenLifetimeSeconds, permit }, first);
  let activeKid = first.entries[0].jwk.kid;
  let takenAt = clock.now();
  return {
    sign: signer.sign,
    signPayload: signer.signPayload,
    metrics: signer.metrics,
    /** @throws SignerError `ERR_SIGNER_STALE` where nothing may be signed now */
    checkMaySign: () => permit(activeKid)(),
    /** Records of the signing keys that are published, the active one first. */
    published: () => publishedKeys(manager.records, "sig"),
    /** When they were taken from the store, in epoch milliseconds. */
    takenAt: () => takenAt,
    /** How long a token may live, by the policy of the store. */
    maxTokenLifetimeSeconds,
    take(signing: CheckedSigning): void {
      signer.take(signing);
      activeKid = signing.entries[0].jwk.kid;
      takenAt = clock.now();
    },
  };
}
