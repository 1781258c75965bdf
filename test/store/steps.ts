import assert from "node:assert/strict";
import type { Register } from "../../src/rotation/store/register.ts";

/** A text of many pages, of which a half could be told. */
export const textAt = (count: number): string => `${count} ${String(count % 10).repeat(20_000)}`;

/** Asserts that a register holds a whole {@link textAt}, or nothing, and gives its count. */
export async function countIn(register: Register): Promise<number> {
  const { text } = await register.read();
  const count = Number.parseInt(text ?? "0", 10);
  assert.equal(text ?? textAt(0), textAt(count));
  return count;
}

/** Writes what follows a count; whether it did. */
export async function writeNext(register: Register, count: number): Promise<boolean> {
  const { version, text = "0" } = await register.read();
  return Number.parseInt(text, 10) === count && register.write(textAt(count + 1), version);
}
