import assert from "node:assert/strict";
import type { Register } from "../../src/rotation/store/register.ts";

/** Returns a document of many pages, of which a partial write would be noticed. */
export const textAt = (count: number): string => `${count} ${String(count % 10).repeat(20_000)}`;

/** Asserts that a register contains a whole {@link textAt}, or nothing, and returns its count. */
export async function countIn(register: Register): Promise<number> {
  const { text } = await register.read();
  const count = Number.parseInt(text ?? "0", 10);
  assert.equal(text ?? textAt(0), textAt(count));
  return count;
}

/** Writes the document after a count; returns whether it was written. */
export async function writeNext(register: Register, count: number): Promise<boolean> {
  const { version, text = "0" } = await register.read();
  return Number.parseInt(text, 10) === count && register.write(textAt(count + 1), version);
}
