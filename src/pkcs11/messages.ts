/** What selects one token; all members must match. */
export interface TokenSelector {
  readonly label?: string;
  readonly serial?: string;
  readonly manufacturer?: string;
  readonly model?: string;
  readonly slotId?: number;
}

/** What selects one private key of a token; all members must match. */
export interface KeySelector {
  readonly id?: Uint8Array;
  readonly label?: string;
}

/** Sent once, first. */
export interface StartMessage {
  readonly kind: "start";
  readonly modulePath: string;
  readonly token: TokenSelector;
  readonly sessions: number;
}

/** One thing to do with the token. */
export type Operation =
  | { readonly kind: "sign"; readonly key: number; readonly digest: Uint8Array }
  | { readonly kind: "find"; readonly key: KeySelector }
  | { readonly kind: "generate"; readonly label: string; readonly id: Uint8Array }
  | { readonly kind: "rename"; readonly key: number; readonly label: string; readonly id: Uint8Array }
  | { readonly kind: "destroy"; readonly key: KeySelector };

export interface Call {
  readonly id: number;
  readonly operation: Operation;
}

/** What the parent tells the child. Calls come in batches: a message costs more than a signature. */
export type ToChild =
  | StartMessage
  /** Comes this way because arguments, environment and files of a process can be seen by others. */
  | { readonly kind: "pin"; readonly pin: string | undefined }
  | { readonly kind: "calls"; readonly calls: readonly Call[] }
  | { readonly kind: "stop" };

/** What went wrong at the token, by what follows from it. */
export interface Failure {
  readonly reason:
    | "package" // pkcs11js cannot be loaded
    | "module" // the module cannot be loaded
    | "ambiguous" // several tokens or keys match
    | "missing" // no key matches
    | "key" // the key cannot do it
    | "refused" // the token does not allow it
    | "pin" // the PIN was refused, or must not be tried
    | "login" // whether the PIN was refused is not known
    | "throttled"
    | "unavailable";
  /** Names functions, return values and what the URI names, never what is signed and no PIN. */
  readonly message: string;
  /** Only a new child can help: sessions and handles are gone, or the module is in a bad state. */
  readonly lost: boolean;
}

/** A token as it calls itself. */
export interface TokenDescription {
  readonly label: string;
  readonly serial: string;
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

/** The result of each kind of operation. */
export interface Results {
  readonly sign: Uint8Array;
  readonly find: FoundKey;
  readonly generate: FoundKey;
  readonly rename: void;
  readonly destroy: void;
}

export type Answer =
  | { readonly id: number; readonly value: Results[keyof Results] }
  | { readonly id: number; readonly failure: Failure };

/** What the child tells the parent. */
export type FromChild =
  /** Asks for the PIN of the token that was found. */
  | { readonly kind: "login"; readonly token: TokenDescription }
  | { readonly kind: "ready"; readonly token: TokenDescription }
  | { readonly kind: "failed"; readonly failure: Failure }
  | { readonly kind: "answers"; readonly answers: readonly Answer[] };
