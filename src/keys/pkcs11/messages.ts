import type { FailureData } from "./failure.ts";
import type { KeySelector, TokenSelector } from "./uri.ts";

/** An operation on a token. */
export type Operation =
  | { readonly kind: "sign"; readonly key: number; readonly digest: Uint8Array }
  | { readonly kind: "find"; readonly key: KeySelector }
  | { readonly kind: "generate"; readonly label: string; readonly id: Uint8Array }
  | { readonly kind: "rename"; readonly key: number; readonly label: string; readonly id: Uint8Array }
  | { readonly kind: "destroy"; readonly key: KeySelector };

/** The value that each kind of operation returns. */
export interface Results {
  readonly sign: Uint8Array;
  readonly find: FoundKey;
  readonly generate: FoundKey;
  readonly rename: void;
  readonly destroy: void;
}

/** A private key and the attributes of its public key. */
export interface FoundKey {
  /** Number that identifies the key in this child. */
  readonly key: number;
  readonly id: Uint8Array;
  readonly label: string;
  readonly isEc: boolean;
  readonly maySign: boolean;
  /** Whether the token requires the PIN for each signature. */
  readonly alwaysAuthenticates: boolean;
  /** CKA_EC_PARAMS. */
  readonly params: Uint8Array | undefined;
  /** CKA_EC_POINT. */
  readonly point: Uint8Array | undefined;
}

/** A token's label and serial number. */
export interface TokenDescription {
  readonly label: string;
  readonly serial: string;
}

/** The token to open, and the number of sessions for concurrent operations. */
export interface TokenRequest {
  readonly modulePath: string;
  readonly token: TokenSelector;
  readonly sessions: number;
}

export interface Call {
  readonly id: number;
  readonly operation: Operation;
}

export type Result =
  | { readonly id: number; readonly value: Results[keyof Results] }
  | { readonly id: number; readonly failure: FailureData };

/** Messages to the child. Calls are batched, because sending a message costs more than making a signature. */
export type ToChild =
  /** The first message. */
  | { readonly kind: "start"; readonly request: TokenRequest }
  /** The PIN. It is sent in a message because other processes could read arguments, environment variables or files. */
  | { readonly kind: "pin"; readonly pin: string | undefined }
  | { readonly kind: "calls"; readonly calls: readonly Call[] }
  | { readonly kind: "stop" };

/** Messages from the child. */
export type FromChild =
  /** Requests the PIN for the token that was found. */
  | { readonly kind: "login"; readonly token: TokenDescription }
  /** Reports how many sessions the token allows. Each session runs one operation at a time. */
  | { readonly kind: "ready"; readonly token: TokenDescription; readonly sessions: number }
  | { readonly kind: "failed"; readonly failure: FailureData }
  | { readonly kind: "results"; readonly results: readonly Result[] };
