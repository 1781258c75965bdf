import { JwksdError, StoreError } from "../../base/errors.ts";
import { isDate } from "../../base/format.ts";
import { printable } from "../../base/printable.ts";
import type { ReadOptions, ReadResult, Register } from "../store/register.ts";
import { maxBytesOf } from "../store/size-limits.ts";

/**
 * Reads a register and checks the result.
 *
 * @throws StoreError `ERR_STORE_UNAVAILABLE` for an invalid result or a driver error
 * @throws JwksdError if the register throws one
 */
export async function readRegister(register: Register, known?: string, options?: ReadOptions): Promise<ReadResult> {
  try {
    const reading = await register.read(known, options);
    const fault = recordFault(reading, known, register.maxBytes);
    if (fault === undefined) return reading;
    throw new StoreError("ERR_STORE_UNAVAILABLE", `the store ${register.name} returned ${fault}`);
  } catch (error) {
    throw storeFailure("read", error);
  }
}

/** Returns the error to throw for a failed call. Wraps driver errors (such as a lost reply) in a `StoreError`. */
export function storeFailure(
  operation: string,
  thrown: unknown,
  code: "ERR_STORE_UNAVAILABLE" | "ERR_COMMIT_UNKNOWN" = "ERR_STORE_UNAVAILABLE",
): JwksdError {
  if (thrown instanceof JwksdError) return thrown;
  const message = `store ${operation} failed: ${printable((thrown as Partial<Error> | undefined)?.message ?? "")}`;
  return new StoreError(code, message, { cause: thrown });
}

/**
 * Describes what is wrong with a result. The time is checked too: if it were NaN, every wake-up would be due
 * immediately.
 */
function recordFault(
  { version, text, now }: ReadResult,
  known: string | undefined,
  maxBytes: number = maxBytesOf.document,
): string | undefined {
  const strings: readonly unknown[] = [version ?? "", text ?? ""];
  if (now !== undefined && !isDate(now)) return "a time that is not in epoch milliseconds; correct its read()";
  if (strings.some((value) => typeof value !== "string"))
    return "a version or a document that is not a string; correct its read()";
  const isKnown = version !== undefined && version === known;
  const isMissing = !isKnown && (version === undefined) !== (text === undefined);
  if (isMissing || (text?.length ?? 0) > maxBytes)
    return `no document, or a document of more than ${maxBytes.toLocaleString("en")} bytes; restore the latest backup`;
  return undefined;
}
