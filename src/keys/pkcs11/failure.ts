import { ConfigError, type JwksdError, SignerError, invalidOption } from "../../base/errors.ts";

const later = "retry later";
const noMorePins = "jwksd will not try a PIN again until it is restarted";
const signerError =
  (code: SignerError["code"], advice?: string) =>
  (message: string): JwksdError =>
    new SignerError(code, advice === undefined ? message : `${message}; ${advice}`);

/** Functions that create the error for callers, keyed by the failure's reason. */
const errors = {
  // pkcs11js could not be loaded.
  package: (message: string) =>
    new ConfigError(
      "ERR_PACKAGE_MISSING",
      `${message}; install it with: npm install pkcs11js (it needs a C++ compiler and Python)`,
    ),
  module: (message: string) => invalidOption(message),
  // Several tokens or keys match.
  ambiguous: (message: string) => new ConfigError("ERR_SIGNER_URI", message),
  // No key matches, or the key cannot perform the operation.
  key: signerError("ERR_SIGNER_KEY_STATE"),
  // The token does not allow the operation.
  refused: signerError("ERR_SIGNER_UNAUTHORIZED"),
  // The PIN was refused or must not be tried.
  pin: signerError("ERR_SIGNER_UNAUTHORIZED", `${noMorePins} with the correct PIN`),
  login: signerError("ERR_SIGNER_UNAUTHORIZED", `the PIN may have been rejected, so ${noMorePins}`),
  throttled: signerError("ERR_SIGNER_THROTTLED", later),
  timeout: signerError("ERR_SIGNER_TIMEOUT", later),
  unavailable: signerError("ERR_SIGNER_UNAVAILABLE", later),
} as const satisfies Record<string, (message: string) => JwksdError>;

type Reason = keyof typeof errors;

/** A token's failure. The message may contain function names, return values and parts of a URI, but never a PIN. */
export class TokenFailure extends Error {
  readonly reason: Reason;
  /** Whether a new process is needed, because sessions and handles are invalid or the module is in an unknown state. */
  readonly lost: boolean;

  constructor(reason: Reason, message: string, lost = false) {
    super(message);
    this.reason = reason;
    this.lost = lost;
  }
}

/** A failure as plain data. Processes send failures in this form, because an error would lose its members when sent. */
export type FailureData = Pick<TokenFailure, "reason" | "message" | "lost">;

export const toData = ({ reason, message, lost }: TokenFailure): FailureData => ({ reason, message, lost });

export const fromData = ({ reason, message, lost }: FailureData): TokenFailure =>
  new TokenFailure(reason, message, lost);

/** Converts a failure to an error for callers. Returns other errors unchanged. */
export function errorFor(error: unknown): unknown {
  return error instanceof TokenFailure ? errors[error.reason](`PKCS#11: ${error.message}`) : error;
}

// After these, the child's sessions and handles are invalid. A token that was removed and reinserted also forgets the
// login.
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

/**
 * Returns the return value that an error from a module function contains, such as `CKR_DEVICE_ERROR`. Does not reveal
 * the message of any other error.
 */
export function returnValue(error: unknown): string {
  const message = error instanceof Error ? error.message : "";
  return /^CKR_\w+/.exec(message)?.[0] ?? "an unknown error";
}

/**
 * Classifies an error from a module function.
 *
 * @param functionName the function's name, which errors from asynchronous functions do not contain
 */
export function toFailure(error: unknown, functionName = "the module"): TokenFailure {
  if (error instanceof TokenFailure) return error;
  const value = returnValue(error);
  const [reason] = reasons.find(([, values]) => values.test(value)) ?? ["unavailable" as const];
  const { method = "" } = error as { readonly method?: string };
  return new TokenFailure(reason, `${method === "" ? functionName : method}: ${value}`, lostValues.test(value));
}
