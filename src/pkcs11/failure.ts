import { ConfigError, type JwksdError, SignerError } from "../errors.ts";

const later = "try again later";
const restart = "is tried again until jwksd is started again";
const signerError =
  (code: SignerError["code"], advice?: string) =>
  (message: string): JwksdError =>
    new SignerError(code, advice === undefined ? message : `${message}; ${advice}`);

/** What callers are told of what went wrong at a token, by what follows from it. */
const errors = {
  // pkcs11js cannot be loaded.
  package: (message: string) =>
    new ConfigError("ERR_PACKAGE_MISSING", `${message}; run: npm install pkcs11js (compiled with C++ and Python)`),
  module: (message: string) => new ConfigError("ERR_OPTION_INVALID", message),
  // Several tokens or keys match.
  ambiguous: (message: string) => new ConfigError("ERR_SIGNER_URI", message),
  // No key matches, or the key cannot do it.
  key: signerError("ERR_SIGNER_KEY_STATE"),
  // The token does not allow it.
  refused: signerError("ERR_SIGNER_UNAUTHORIZED"),
  // The PIN was refused, or must not be tried.
  pin: signerError("ERR_SIGNER_UNAUTHORIZED", `no PIN ${restart} with the right one`),
  login: signerError("ERR_SIGNER_UNAUTHORIZED", `whether the PIN was refused is not known, so none ${restart}`),
  throttled: signerError("ERR_SIGNER_THROTTLED", later),
  timeout: signerError("ERR_SIGNER_TIMEOUT", later),
  unavailable: signerError("ERR_SIGNER_UNAVAILABLE", later),
} as const satisfies Record<string, (message: string) => JwksdError>;

type Reason = keyof typeof errors;

/** What went wrong at a token. The message names functions, return values and what a URI names; it holds no PIN. */
export class TokenFailure extends Error {
  readonly reason: Reason;
  /** Only a new process can help: sessions and handles are gone, or the module is in a bad state. */
  readonly lost: boolean;

  constructor(reason: Reason, message: string, lost = false) {
    super(message);
    this.reason = reason;
    this.lost = lost;
  }
}

/** A failure as a message between processes has it, which would lose the members of an error. */
export type FailureData = Pick<TokenFailure, "reason" | "message" | "lost">;

export const toData = ({ reason, message, lost }: TokenFailure): FailureData => ({ reason, message, lost });

export const fromData = ({ reason, message, lost }: FailureData): TokenFailure =>
  new TokenFailure(reason, message, lost);

/** What callers are told; what is no failure of a token stays as it is. */
export function errorFor(error: unknown): unknown {
  return error instanceof TokenFailure ? errors[error.reason](`PKCS#11: ${error.message}`) : error;
}

// With these, all that the child holds is worth nothing any more. A login that is gone is among them: a token that was taken out
// and put back forgets it.
const lostValues =
  /^CKR_(DEVICE_REMOVED|TOKEN_NOT_PRESENT|TOKEN_NOT_RECOGNIZED|SLOT_ID_INVALID|CRYPTOKI_NOT_INITIALIZED|SESSION_CLOSED|SESSION_HANDLE_INVALID|USER_NOT_LOGGED_IN|KEY_HANDLE_INVALID|OBJECT_HANDLE_INVALID)$/;

const reasons: readonly [reason: Reason, values: RegExp][] = [
  ["unavailable", lostValues],
  ["pin", /^CKR_(PIN_\w+|USER_PIN_NOT_INITIALIZED)$/],
  ["refused", /^CKR_(USER_\w+|TOKEN_WRITE_PROTECTED|SESSION_READ_ONLY|ACTION_PROHIBITED|FUNCTION_REJECTED)$/],
  ["throttled", /^CKR_(DEVICE_MEMORY|SESSION_COUNT)$/],
  [
    "key",
    /^CKR_(KEY_FUNCTION_NOT_PERMITTED|KEY_TYPE_INCONSISTENT|KEY_SIZE_RANGE|MECHANISM_\w+|ATTRIBUTE_\w+|CURVE_\w+)$/,
  ],
];

/** The return value of a module's function, such as `CKR_DEVICE_ERROR`; another error's message is not passed on. */
export function returnValue(error: unknown): string {
  const message = error instanceof Error ? error.message : "";
  return /^CKR_\w+/.exec(message)?.[0] ?? "an unknown error";
}

/**
 * What follows from an error of a module's function.
 *
 * @param functionName where the error does not say it, which those of asynchronous functions do not
 */
export function failureOf(error: unknown, functionName = "the module"): TokenFailure {
  if (error instanceof TokenFailure) return error;
  const value = returnValue(error);
  const [reason] = reasons.find(([, values]) => values.test(value)) ?? ["unavailable" as const];
  const { method = "" } = error as { readonly method?: string };
  return new TokenFailure(reason, `${method === "" ? functionName : method}: ${value}`, lostValues.test(value));
}
