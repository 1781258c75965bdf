import type { CryptoKey } from "jose";
import { sha256, verifyLater } from "#crypto";
import { withDeadline } from "../../base/async.ts";
import type { Bytes } from "../../base/bytes.ts";
import { type Clock, systemClock } from "../../base/clock.ts";
import { SignerError } from "../../base/errors.ts";
import { type Optional, type Rules, checkOptions, number, timeout } from "../../base/options.ts";
import { traced } from "../../base/tracing.ts";
import { localSign } from "./local-signer.ts";
import type { Signer } from "./signer.ts";

/**
 * Limits for a signer whose key is in an HSM or key service. The defaults suit a backend that takes 10 to 50 ms per
 * signature.
 */
export interface SignerLimits {
  /** Maximum number of concurrent signatures. Default: 16. */
  readonly maxConcurrent?: Optional<number>;
  /** Maximum number of calls waiting for their turn. Default: 1024. */
  readonly maxQueued?: Optional<number>;
  /** Time limit for one signature, including the wait, in milliseconds. Default: 5000. */
  readonly timeoutMs?: Optional<number>;
}

const rules: Rules<SignerLimits> = { maxConcurrent: number(1), maxQueued: number(0), timeoutMs: timeout };

/** Signs a JWS signing input. Returns 64 bytes, r then s, after verifying them with the published key. */
export interface BoundedSign {
  (message: Bytes, signal?: AbortSignal): Promise<Bytes>;
  /** Number of calls waiting for their turn. */
  readonly queued: () => number;
}

/**
 * Wraps a signer. Limits its concurrency, queue length and time, and verifies every signature with the key published
 * under its kid. A signature that does not verify is an error.
 *
 * Even after its deadline, an operation counts as in flight until the backend finishes it, so a backend that hangs
 * receives no further work. None of this applies to a local signer, which has no backend and was checked when its key
 * was loaded.
 *
 * The returned function throws SignerError `ERR_SIGNER_BUSY`, `ERR_SIGNER_TIMEOUT`, `ERR_SIGNER_ABORTED`,
 * `ERR_SIGNER_BAD_SIGNATURE`, and the signer's own SignerError. Any other error becomes `ERR_SIGNER_UNAVAILABLE`.
 *
 * @param name the key's name in messages, such as `kid "2026-11"`
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`
 */
export function boundSigner(
  signer: Signer,
  publicKey: CryptoKey,
  name: string,
  limits: SignerLimits = {},
  clock: Clock = systemClock,
): BoundedSign {
  const { maxConcurrent = 16, maxQueued = 1024, timeoutMs = 5000 } = checkOptions(limits, rules, "signer limit");
  let running = 0;
  const queue: (() => void)[] = [];

  /** Passes the slot to the call that has waited longest. */
  function release(): void {
    const next = queue.shift();
    if (next === undefined) running -= 1;
    else next();
  }

  /** Runs `start` when a slot is free, and then frees the slot. */
  function enter(start: () => Promise<Uint8Array>, signal: AbortSignal): Promise<Uint8Array> {
    return new Promise((resolve, reject) => {
      // The call that finishes starts this one directly, so that no later call can overtake it.
      const run = (): void => {
        signal.removeEventListener("abort", leave);
        start().finally(release).then(resolve, reject);
      };
      const leave = (): void => {
        queue.splice(queue.indexOf(run), 1);
        reject(signal.reason as Error);
      };
      if (running < maxConcurrent) {
        running += 1;
        run();
      } else if (queue.length < maxQueued) {
        queue.push(run);
        signal.addEventListener("abort", leave, { once: true });
      } else {
        reject(
          new SignerError("ERR_SIGNER_BUSY", `${name}: ${maxQueued} signing requests are already waiting; retry later`),
        );
      }
    });
  }

  const signLocally = localSign(signer);
  if (signLocally !== undefined) {
    const sign = async (message: Bytes, signal?: AbortSignal): Promise<Bytes> => {
      checkAborted(signal);
      try {
        const signature = await signLocally(message);
        checkAborted(signal);
        return signature;
      } catch (error) {
        throw error instanceof SignerError ? error : unavailable(error);
      }
    };
    return Object.assign(sign, { queued: () => 0 });
  }

  const expired = (): SignerError =>
    new SignerError("ERR_SIGNER_TIMEOUT", `${name}: no signature within ${timeoutMs} ms; retry later`);

  const sign = async (message: Bytes, signal?: AbortSignal): Promise<Bytes> => {
    const digest = await sha256(message);
    const work = (signal: AbortSignal): Promise<Uint8Array> =>
      enter(async () => signer.sign({ digest, message, signal }), signal);
    try {
      return await traced("jwksd sign", { "jwksd.key": name }, async () =>
        checked(await withDeadline(work, { clock, timeoutMs, signal, expired, aborted }), message),
      );
    } catch (error) {
      throw error instanceof SignerError ? error : unavailable(error);
    }
  };
  return Object.assign(sign, { queued: () => queue.length });

  async function checked(signature: Uint8Array, message: Bytes): Promise<Bytes> {
    const isBytes = signature instanceof Uint8Array;
    if (!isBytes || signature.length !== 64) {
      const given = isBytes ? `${signature.length} bytes` : typeof signature;
      throw new SignerError(
        "ERR_SIGNER_BAD_SIGNATURE",
        `${name}: the signer returned ${given} instead of the 64 bytes of an ES256 signature (r followed by s, RFC 7518 section 3.4); if the signature is in DER, convert it`,
      );
    }
    const copy = new Uint8Array(signature);
    if (!(await verifyLater(publicKey, "ES256", message, copy))) {
      throw new SignerError(
        "ERR_SIGNER_BAD_SIGNATURE",
        `${name}: the signature does not verify with the published key`,
      );
    }
    return copy;
  }

  function checkAborted(signal: AbortSignal | undefined): void {
    if (signal?.aborted === true) throw aborted();
  }

  function aborted(): SignerError {
    return new SignerError("ERR_SIGNER_ABORTED", `${name}: the caller aborted the signing operation`);
  }

  function unavailable(cause: unknown): SignerError {
    return new SignerError("ERR_SIGNER_UNAVAILABLE", `${name}: the signer failed; retry later`, { cause });
  }
}
