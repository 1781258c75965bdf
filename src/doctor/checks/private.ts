import { isObject } from "../document.ts";
import { type Note, note } from "../finding.ts";
import { maxKeys } from "../key.ts";
import { isPrivateText, secretsIn } from "../secrets.ts";

/** Values that are looked at; more than 1,000 whole keys have. */
const maxNodes = 50_000;

/**
 * Finds private keys beside `keys`, nested in it, in texts and in names of members. The private members of its entries are for `checkMembers`.
 *
 * @param what how a message calls the document
 */
export function checkPrivate(document: unknown, what: string): Note[] {
  const notes: Note[] = [];
  const listed = isObject(document) && Array.isArray(document["keys"]) ? (document["keys"] as unknown[]) : [];
  const entries = new Set(listed.slice(0, maxKeys));
  const open: { readonly value: unknown; readonly name: string }[] = [{ value: document, name: what }];
  let nodes = 1;
  while (open.length > 0) {
    const { value, name } = open.pop() as (typeof open)[number];
    if (typeof value === "string" && isPrivateText(value)) notes.push(note("JWKS_PRIVATE_MEMBERS", `${name} has one`));
    if (typeof value !== "object" || value === null) continue;
    const found = entries.has(value) || !isObject(value) ? [] : secretsIn(value);
    if (isObject(value) && Object.keys(value).some(isPrivateText))
      notes.push(note("JWKS_PRIVATE_MEMBERS", `the name of a member of ${name} is one`));
    if (found.length > 0) notes.push(note("JWKS_PRIVATE_MEMBERS", `${name} has ${found.join(", ")}`));
    const inner = Array.isArray(value) ? (value as unknown[]) : Object.values(value);
    for (let index = 0; index < inner.length && nodes < maxNodes; index += 1) {
      const isEntry = value === listed && index < maxKeys;
      open.push({ value: inner[index], name: isEntry ? `key ${index + 1}` : `a member of ${entryOf(name)}` });
      nodes += 1;
    }
  }
  return notes;
}

/** A name that does not grow with the depth. */
const entryOf = (name: string): string => name.replace(/^a member of /, "");
