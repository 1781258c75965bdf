import type { FailureData } from "./failure.ts";
import type { KeySelector, TokenSelector } from "./uri.ts";

/** One operation of a token. */
export type Operation =
  | { readonly kind: "sign"; readonly key: number; readonly digest: Uint8Array }
  | { readonly kind: "find"; readonly key: KeySelector }
  | { readonly kind: "generate"; readonly label: string; readonly id: Uint8Array }
  | { readonly kind: "rename"; readonly key: number; readonly label: string; readonly id: Uint8Array }
  | { readonly kind: "destroy"; readonly key: KeySelector };

/** The result of each kind of operation. */
export interface Results {
  readonly sign: Uint8Array;
  readonly find: FoundKey;
  readonly generate: FoundKey;
  readonly rename: void;
  readonly destroy: void;
}

/** A private key, and the attributes of its public half. */
export interface FoundKey {
  /** The number of the key in this child. */
  readonly key: number;
  readonly id: Uint8Array;
  readonly label: string;
  readonly isEc: boolean;
  readonly maySign: boolean;
  /** Whether the token asks for the PIN at each signature. */
  readonly alwaysAuthenticates: boolean;
  /** CKA_EC_PARAMS. */
  readonly params: Uint8Array | undefined;
  /** CKA_EC_POINT. */
  readonly point: Uint8Array | undefined;
}

/** A token. */
export interface TokenDescription {
  readonly label: string;
  readonly serial: string;
}

/** The token to open, and the sessions for operations that overlap. */
export interface TokenRequest {
  readonly modulePath: string;
  readonly token: TokenSelector;
  readonly sessions: number;
}

export interface Call {
  readonly id: number;
  readonly operation: Operation;
}

export type Answer =
  | { readonly id: number; readonly value: Results[keyof Results] }
  | { readonly id: number; readonly failure: FailureData };

/** Messages of the parent. Calls are sent in batches, because a message costs more than a signature. */
export type ToChild =
  /** The first message. */
  | { readonly kind: "start"; readonly request: TokenRequest }
  /** Sent as a message, because other processes can see arguments, environment and files. */
  | { readonly kind: "pin"; readonly pin: string | undefined }
  | { readonly kind: "calls"; readonly calls: readonly Call[] }
  | { readonly kind: "stop" };

/** Messages of the child. */
export type FromChild =
  /** Asks for the PIN of the token that was found. */
  | { readonly kind: "login"; readonly token: TokenDescription }
  /** With the number of sessions that the token allows. Each is for one operation at a time. */
  | { readonly kind: "ready"; readonly token: TokenDescription; readonly sessions: number }
  | { readonly kind: "failed"; readonly failure: FailureData }
  | { readonly kind: "answers"; readonly answers: readonly Answer[] };
