// Control and format characters, line separators, and halves of pairs: what a terminal may obey, and what is not seen.
const unprintable = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu;

/** A text from outside as one line that a terminal shows and does not obey: what is not printable is escaped. */
export function printable(text: string): string {
  return text.replace(unprintable, (character) => `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`);
}

/** The same for a text of several lines. */
export function printableLines(text: string): string {
  return text.split("\n").map(printable).join("\n");
}

/** JSON in one line that a terminal does not obey, and that means the same. */
export function printableJsonLine(json: string): string {
  return json.replace(unprintable, (character) => character.split("").map(escapedUnit).join(""));
}

/** A value as JSON in lines of printable ASCII; what is escaped is the same to whoever parses it. */
export function printableJson(value: unknown): string {
  return JSON.stringify(value, undefined, 2).replace(/[^\n -~]/g, escapedUnit);
}

function escapedUnit(unit: string): string {
  return `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
}
