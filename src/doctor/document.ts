import { jsonOf } from "../base/json.ts";
import { type Note, note } from "./finding.ts";

interface Read {
  readonly text: string;
  readonly value: unknown;
  readonly notes: readonly Note[];
}

/** Parses JSON leniently, and notes what strict parsers refuse. The value is `undefined` if it is not JSON. */
export function readJson(body: Uint8Array, what: string): Read {
  const notes: Note[] = [];
  const hasMark = body[0] === 0xef && body[1] === 0xbb && body[2] === 0xbf;
  if (hasMark) notes.push(note("HTTP_BOM", what));
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(body);
  } catch {
    notes.push(note("HTTP_NOT_UTF8", what));
    text = new TextDecoder("utf-8").decode(body);
  }
  return { text, value: jsonOf(text), notes };
}

export const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null && !Array.isArray(value);
