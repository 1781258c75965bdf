import { StoreError } from "../../base/errors.ts";
import { isDate } from "../../base/format.ts";
import type { ReadOptions, Reading, Register } from "../store/register.ts";

/**
 * Reads a register, and refuses what none may return.
 *
 * @throws StoreError `ERR_STORE_UNAVAILABLE`; and what the register throws
 */
export async function readRegister(register: Register, known?: string, options?: ReadOptions): Promise<Reading> {
  const reading = await register.read(known, options);
  const fault = faultOf(reading, known);
  if (fault === undefined) return reading;
  throw new StoreError("ERR_STORE_UNAVAILABLE", `the store ${register.name} returned ${fault}`);
}

/** Describes what no register may return. A time that is not a number would make every wake-up due. */
function faultOf({ version, text, now }: Reading, known: string | undefined): string | undefined {
  const strings: readonly unknown[] = [version ?? "", text ?? ""];
  if (now !== undefined && !isDate(now)) return "a time that is not a number of epoch milliseconds; correct its read()";
  if (strings.some((value) => typeof value !== "string"))
    return "a version or a document that is not a string; correct its read()";
  const isKnown = version !== undefined && version === known;
  if (isKnown || (version === undefined) === (text === undefined)) return undefined;
  return "a version without its document, which may be too large to be read; restore the latest backup";
}
