import type { Clock } from "../../base/clock.ts";
import type { CheckedSigning } from "../../publish/keyset.ts";
import type { ServiceManager } from "../../rotation/manager/manager.ts";
import { type TokenSigner, createTokenSigner } from "../../sign/token/token-signer.ts";
import { type LiveRecord, publishedKeys } from "../../rotation/rules/records.ts";

/** What sockets sign with. */
export interface Signing extends Pick<TokenSigner, "sign" | "signPayload"> {
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
export interface ManagedSigning extends Signing, Pick<TokenSigner, "take" | "metrics"> {}

/** Signs with the keys of a manager. `take` gives it each keyset once that is published. */
export function createSigning(
  issuer: string,
  manager: Pick<ServiceManager, "maxTokenLifetimeSeconds" | "permit" | "records">,
  first: CheckedSigning,
  clock: Clock,
): ManagedSigning {
  const maxTokenLifetimeSeconds = (): number => manager.maxTokenLifetimeSeconds;
  const permit = (kid: string): (() => void) => manager.permit(kid);
  const signer = createTokenSigner({ issuer, clock, maxTokenLifetimeSeconds, permit }, first);
  let activeKid = first.entries[0].jwk.kid;
  let takenAt = clock.now();
  return {
    sign: signer.sign,
    signPayload: signer.signPayload,
    metrics: signer.metrics,
    checkMaySign: () => permit(activeKid)(),
    published: () => publishedKeys(manager.records, "sig"),
    takenAt: () => takenAt,
    maxTokenLifetimeSeconds,
    take(signing) {
      signer.take(signing);
      activeKid = signing.entries[0].jwk.kid;
      takenAt = clock.now();
    },
  };
}
