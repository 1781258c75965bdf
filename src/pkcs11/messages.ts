import type { FailureData } from "./failure.ts";
import type { KeySelector, TokenSelector } from "./uri.ts";

/** One thing to do with the token. */
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

/** A private key, and what the token says about its public half. */
export interface FoundKey {
  /** By which this child knows the key. */
  readonly key: number;
  readonly id: Uint8Array;
  readonly label: string;
  readonly isEc: boolean;
  readonly maySign: boolean;
  /** Asks for the PIN again at each signature. */
  readonly alwaysAuthenticates: boolean;
  /** CKA_EC_PARAMS and CKA_EC_POINT, as they are. */
  readonly params: Uint8Array | undefined;
  readonly point: Uint8Array | undefined;
}

/** A token as it calls itself. */
export interface TokenDescription {
  readonly label: string;
  readonly serial: string;
}

/** Which token is opened, and for how many operations at once. */
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

/** What the parent tells the child. Calls come in batches: a message costs more than a signature. */
export type ToChild =
  /** Sent once, first. */
  | { readonly kind: "start"; readonly request: TokenRequest }
  /** Comes this way because arguments, environment and files of a process can be seen by others. */
  | { readonly kind: "pin"; readonly pin: string | undefined }
  | { readonly kind: "calls"; readonly calls: readonly Call[] }
  | { readonly kind: "stop" };

/** What the child tells the parent. */
export type FromChild =
  /** Asks for the PIN of the token that was found. */
  | { readonly kind: "login"; readonly token: TokenDescription }
  /** With the sessions that the token has granted, each for one operation at a time. */
  | { readonly kind: "ready"; readonly token: TokenDescription; readonly sessions: number }
  | { readonly kind: "failed"; readonly failure: FailureData }
  | { readonly kind: "answers"; readonly answers: readonly Answer[] };
