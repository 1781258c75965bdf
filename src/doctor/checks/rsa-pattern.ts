import { type Note, note } from "../finding.ts";

const run = 16;

/** Finds a byte that is repeated so often that chance does not explain it: in a random modulus, once in 2^110. */
export function checkPattern(n: Uint8Array, name: string): Note[] {
  let length = 1;
  for (let at = 1; at < n.length && length < run; at += 1) length = n[at] === n[at - 1] ? length + 1 : 1;
  return length < run ? [] : [note("JWKS_RSA_PATTERN", name)];
}
