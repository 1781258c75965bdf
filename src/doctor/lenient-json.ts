import { jsonOf } from "../base/json.ts";
import { type Note, note } from "./finding.ts";

interface Document {
  readonly text: string;
  readonly value: unknown;
  readonly notes: readonly Note[];
}

/**
 * Parses JSON leniently, and notes everything that a strict parser would reject. The value is `undefined` if the text
 * is not JSON.
 */
export function readJson(body: Uint8Array, what: string): Document {
  const notes: Note[] = [];
  const hasMark = body[0] === 0xef && body[1] === 0xbb && body[2] === 0xbf;
  if (hasMark) notes.push(note("HTTP_NOT_UTF8", `${what}: begins with a byte order mark`));
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(body);
  } catch {
    notes.push(note("HTTP_NOT_UTF8", `${what}: is not UTF-8`));
    text = new TextDecoder("utf-8").decode(body);
  }
  return { text, value: jsonOf(text), notes };
}

/** Returns a parsed JWK Set's entries, or `undefined` if the value is not a JWK Set. */
export function entriesIn(set: unknown): readonly unknown[] | undefined {
  const keys = isObject(set) ? set["keys"] : undefined;
  return Array.isArray(keys) ? keys : undefined;
}

export const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null && !Array.isArray(value);
