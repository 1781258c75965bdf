import { ConfigError, SignerError } from "../errors.ts";
import type { Failure } from "./messages.ts";

/** A call that the token did not answer with a result. */
export class CallFailure extends Error {
  readonly failure: Failure;
  /** Whether the call itself took too long. */
  readonly timedOut: boolean;

  constructor(failure: Failure, timedOut = false) {
    super(failure.message);
    this.failure = failure;
    this.timedOut = timedOut;
  }
}

/** A PIN is not tried again where it was refused, nor where nobody knows whether it was. */
export function unauthorized({ reason, message }: Failure): SignerError {
  const why =
    reason === "pin"
      ? "no PIN is tried again until jwksd is started again with the right one"
      : "whether the PIN was refused is not known, so none is tried again until jwksd is started again";
  return new SignerError("ERR_SIGNER_UNAUTHORIZED", `PKCS#11: ${message}; ${why}`);
}

/** What callers are told. Messages hold names of functions, return values and what the URI names, never what is signed and no PIN. */
export function signerErrorOf(error: unknown): Error {
  if (!(error instanceof CallFailure)) return error as Error;
  const { reason, message } = error.failure;
  if (reason === "pin" || reason === "login") return unauthorized(error.failure);
  const text = `PKCS#11: ${message}`;
  switch (reason) {
    case "package":
      return new ConfigError(
        "ERR_PACKAGE_MISSING",
        `${text}; run: npm install pkcs11js (compiled with C++ and Python)`,
      );
    case "module":
      return new ConfigError("ERR_OPTION_INVALID", `PKCS#11: the module cannot be loaded: ${message}`);
    case "ambiguous":
      return new ConfigError("ERR_SIGNER_URI", text);
    case "missing":
    case "key":
      return new SignerError("ERR_SIGNER_KEY_STATE", text);
    case "refused":
      return new SignerError("ERR_SIGNER_UNAUTHORIZED", text);
    case "throttled":
      return new SignerError("ERR_SIGNER_THROTTLED", `${text}; try again later`);
    default:
      return new SignerError(
        error.timedOut ? "ERR_SIGNER_TIMEOUT" : "ERR_SIGNER_UNAVAILABLE",
        `${text}; try again later`,
      );
  }
}
