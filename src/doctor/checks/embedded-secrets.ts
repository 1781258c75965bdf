import { maxKeys } from "../decode-key.ts";
import { type Note, note } from "../finding.ts";
import { entriesIn, isObject } from "../lenient-json.ts";
import { isPrivateText, secretsIn } from "../private-key-patterns.ts";

/** Maximum number of values to examine. Even 1,000 complete keys contain fewer values. */
const maxNodes = 50_000;

/**
 * Finds private keys that are outside `keys`, nested inside it, in strings, or in member names. `checkMembers` checks
 * the entries' own members.
 *
 * @param what the document's name in messages
 */
export function checkPrivate(document: unknown, what: string): Note[] {
  const notes: Note[] = [];
  const listed = entriesIn(document) ?? [];
  const entries = new Set(listed.slice(0, maxKeys));
  const open: { readonly value: unknown; readonly name: string }[] = [{ value: document, name: what }];
  let nodes = 1;
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    const { value, name } = next;
    if (typeof value === "string" && isPrivateText(value))
      notes.push(note("JWKS_PRIVATE_MEMBERS", `${name} contains a private key`));
    if (typeof value !== "object" || value === null) continue;
    const found = entries.has(value) || !isObject(value) ? [] : secretsIn(value);
    if (isObject(value) && Object.keys(value).some(isPrivateText))
      notes.push(note("JWKS_PRIVATE_MEMBERS", `the name of a member in ${name} is a private key`));
    if (found.length > 0) notes.push(note("JWKS_PRIVATE_MEMBERS", `${name} has ${found.join(", ")}`));
    const inner: readonly unknown[] = Array.isArray(value) ? value : Object.values(value);
    for (let index = 0; index < inner.length && nodes < maxNodes; index += 1) {
      const isEntry = value === listed && index < maxKeys;
      open.push({ value: inner[index], name: isEntry ? `key ${index + 1}` : `a member of ${entryOf(name)}` });
      nodes += 1;
    }
  }
  return notes;
}

/** Removes the leading "a member of" from a name, so that names do not grow with the nesting depth. */
const entryOf = (name: string): string => name.replace(/^a member of /, "");
