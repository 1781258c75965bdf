import type { Clock } from "../../base/clock.ts";
import type { JwksdError } from "../../base/errors.ts";
import type { CheckedSigning } from "../../keys/keyset/keyset.ts";
import { type SignerLimits, guardSigner } from "../../keys/signer/guard.ts";
import type { Signer } from "../../keys/signer/signer.ts";
import type { ActiveKey } from "../token/sign.ts";
import { createSignatures } from "./signatures.ts";

interface Options {
  readonly clock: Clock;
  /** As it is now: a policy may change. */
  readonly maxTokenLifetimeSeconds: () => number;
  readonly signerLimits?: SignerLimits | undefined;
  /** Called when a signature failed, and not because its caller aborted it. */
  readonly onFailure?: (kid: string, error: JwksdError) => void;
}

/** The active keys of one keyset after the other: each is guarded once, and its signatures are counted. */
export function createActiveKeys({ clock, maxTokenLifetimeSeconds, signerLimits, onFailure = () => {} }: Options) {
  const signatures = createSignatures(clock, onFailure);
  const known = new WeakMap<Signer, ActiveKey>();
  return {
    /** The active key of a keyset. @throws ConfigError see `guardSigner` */
    of([{ jwk, signer, publicKey }]: CheckedSigning): ActiveKey {
      const { kid } = jwk;
      const before = known.get(signer);
      if (before?.kid === kid) return before;
      const guarded = guardSigner(signer, publicKey, `kid ${JSON.stringify(kid)}`, signerLimits, clock);
      const active = {
        kid,
        get maxLifetimeSeconds() {
          return maxTokenLifetimeSeconds();
        },
        sign: signatures.measured(kid, guarded),
        headers: new Map(),
      };
      known.set(signer, active);
      return active;
    },
    /** Forgets the signatures of all other keys. */
    keep: (kids: readonly string[]) => signatures.keep(kids),
    metrics: () => signatures.metrics(),
  };
}
