import type { Failure } from "./messages.ts";

/** A failure on its way out of the child. */
export class TokenFailure extends Error {
  readonly failure: Failure;

  constructor(reason: Failure["reason"], message: string, lost = false) {
    super(message);
    this.name = "TokenFailure";
    this.failure = { reason, message, lost };
  }
}

const reasons: readonly [reason: Failure["reason"], values: RegExp][] = [
  ["pin", /^CKR_(PIN_\w+|USER_PIN_NOT_INITIALIZED)$/],
  ["refused", /^CKR_(USER_\w+|TOKEN_WRITE_PROTECTED|SESSION_READ_ONLY|ACTION_PROHIBITED|FUNCTION_REJECTED)$/],
  ["throttled", /^CKR_(DEVICE_MEMORY|SESSION_COUNT)$/],
  [
    "key",
    /^CKR_(KEY_FUNCTION_NOT_PERMITTED|KEY_TYPE_INCONSISTENT|KEY_SIZE_RANGE|MECHANISM_\w+|ATTRIBUTE_\w+|CURVE_\w+)$/,
  ],
];

// With these, all that the child holds is worth nothing any more. A login that is gone is among them: a token that was taken out
// and put back forgets it.
const lostValues =
  /^CKR_(DEVICE_REMOVED|TOKEN_NOT_PRESENT|TOKEN_NOT_RECOGNIZED|SLOT_ID_INVALID|CRYPTOKI_NOT_INITIALIZED|SESSION_CLOSED|SESSION_HANDLE_INVALID|USER_NOT_LOGGED_IN|KEY_HANDLE_INVALID|OBJECT_HANDLE_INVALID)$/;

/** The return value of a module's function, such as `CKR_DEVICE_ERROR`; another error's message is not passed on. */
export function returnValue(error: unknown): string {
  const message = error instanceof Error ? error.message : "";
  return /^CKR_\w+/.exec(message)?.[0] ?? "an unknown error";
}

/** What follows from an error of a module's function. */
export function failureOf(error: unknown, functionName: string): Failure {
  if (error instanceof TokenFailure) return error.failure;
  const value = returnValue(error);
  const lost = lostValues.test(value);
  const reason = lost ? "unavailable" : (reasons.find(([, values]) => values.test(value))?.[0] ?? "unavailable");
  return { reason, message: `${functionName}: ${value}`, lost };
}
