import { shownUrl } from "../base/urls.ts";

const longest = 60;

/** A value from outside for a message: a short JSON text, or the type of an array or object. */
export function shown(value: unknown): string {
  if (typeof value === "string") {
    return JSON.stringify(value.length > longest ? `${value.slice(0, longest)}…` : value);
  }
  if (value === undefined) return "missing";
  if (Array.isArray(value)) return "an array";
  return typeof value === "object" && value !== null ? "an object" : JSON.stringify(value);
}

/** The first characters of a body that cannot be read. Of PEM only the label, because a key may follow. */
export function beginning(text: string): string {
  const [label] = /^\s*-----BEGIN [^-\n]{0,40}-----/.exec(text) ?? [];
  return text === "" ? "nothing: it is empty" : shown(label === undefined ? text.slice(0, longest + 1) : `${label}…`);
}

/** `one key`, `3 keys`. */
export const counted = (count: number, noun: string): string =>
  count === 1 ? `one ${noun}` : `${count.toLocaleString("en")} ${noun}s`;

/** A URL for a message, without parts that may be secret. */
export const urlText = (url: string): string => (URL.canParse(url) ? shownUrl(url) : shown(url));
