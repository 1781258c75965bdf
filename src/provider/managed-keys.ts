import { invalidOption } from "../base/errors.ts";
import type { Keysets } from "../publish/keyset.ts";
import type { ProviderOptions } from "./options.ts";

/** Gets the keys after each change; a provider is one. `mode` is for providers without a predicate of their own. */
export interface KeySubscriber {
  update(keysets: Keysets, mode: { readonly isRotating: boolean }): Promise<void>;
}

/** Keys that change by themselves, with what follows from their policy; a key manager has them. */
export interface ManagedKeys {
  /** Issuer identifier of the provider. */
  readonly issuer: string;
  /** As they are now. */
  readonly keysets: Keysets;
  /** Whether the rotation mode is on. */
  readonly isRotating: boolean;
  /** Longest lifetime of a token, in seconds, as it is now. */
  readonly maxTokenLifetimeSeconds: number;
  /**
   * A check whether this process may sign with a key, by what it has read of its store until now. It is called before a signature, and again
   * when the signature is there. It throws SignerError `ERR_SIGNER_STALE`.
   */
  permit(kid: string): () => void;
  /** Missing where the keys change by themselves. */
  readonly onDemand?: KeysOnDemand | undefined;
  /** How a signing key ended; `undefined` where there was none, or it still lives. */
  endOf(kid: string): "removed" | "revoked" | undefined;
  /**
   * Gives a subscriber the keysets now and after every change; resolves after the first time. Where a later one fails, or takes more than
   * 10 s, it is tried again, and the other subscribers do not go without.
   */
  subscribe(subscriber: KeySubscriber): Promise<void>;
}

/** Keys that are read only when somebody asks for them. */
export interface KeysOnDemand {
  /** Is called before each use. `undefined` where the keys may be used now. Rejects with SignerError `ERR_SIGNER_STALE`. */
  fresh(): Promise<void> | undefined;
  /** Reads them for a kid that nobody knows: once a second at most. */
  ask(): Promise<void>;
}

/** Options that managed keys bring with them. */
const brought = ["keyset", "encryptionKeyset", "jwksRotationActive", "maxTokenLifetimeSeconds", "permit", "retiredKid"];

/** The options of a provider that follows managed keys. @throws ConfigError `ERR_OPTION_INVALID` */
export function optionsOf(keys: ManagedKeys, options: ProviderOptions): ProviderOptions {
  const twice = brought.find((name) => options[name as keyof ProviderOptions] !== undefined);
  if (twice !== undefined) throw invalidOption(`"keys" brings its own "${twice}"; leave that out`);
  if (options.issuer !== undefined && options.issuer !== keys.issuer) {
    throw invalidOption(`"issuer" is another one than that of "keys", ${JSON.stringify(keys.issuer)}`);
  }
  return {
    ...options,
    ...keys.keysets,
    issuer: keys.issuer,
    jwksRotationActive: () => keys.isRotating,
    permit: (kid) => keys.permit(kid),
    retiredKid: (kid) => keys.endOf(kid),
  };
}
