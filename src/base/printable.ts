// Control and format characters, line separators and lone surrogates: terminals may interpret or hide them.
const unprintable = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu;

const maxShown = 500;

/** Converts a string to one printable line by escaping characters that a terminal could interpret. */
export function printableLine(text: string): string {
  return text.replace(unprintable, (character) => `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`);
}

/** Truncates a string to 500 characters. */
export const shortened = (text: string): string => (text.length > maxShown ? `${text.slice(0, maxShown)}…` : text);

/**
 * Converts an external string, such as one from a store or a server, to one printable line of at most 500 characters.
 */
export const printable = (text: string): string => printableLine(shortened(text));

/** Converts an external value to JSON, and then to one printable line as {@link printable} does. */
export const quoted = (value: unknown): string => printable(JSON.stringify(value) ?? "undefined");

/** Like {@link printableLine}, but accepts a string with several lines. */
export function printableLines(text: string): string {
  return text.split("\n").map(printableLine).join("\n");
}

/** Converts JSON to equivalent JSON on one printable line. */
export function printableJsonLine(json: string): string {
  return json.replace(unprintable, (character) => character.split("").map(escapedUnit).join(""));
}

/** Quotes a string as one shell word, with `printf` for characters outside printable ASCII. */
export function shellWord(text: string): string {
  if (/^[\w.:/@%+=,][\w.:/@%+=,-]*$/.test(text)) return text;
  if (/^[ -~]*$/.test(text)) return `'${text.replaceAll("'", `'\\''`)}'`;
  const octets = [...new TextEncoder().encode(text)].map((octet) => `\\${octet.toString(8).padStart(3, "0")}`);
  return `"$(printf '${octets.join("")}')"`;
}

/** Serializes a value as indented JSON in printable ASCII. */
export function printableJson(value: unknown): string {
  return JSON.stringify(value, undefined, 2).replace(/[^\n -~]/g, escapedUnit);
}

/** Returns the JSON escape of a UTF-16 code unit. */
export function escapedUnit(unit: string): string {
  return `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
}
