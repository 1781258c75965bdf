// Control and format characters, line separators and lone surrogates: terminals may interpret or hide them.
const unprintable = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu;

/** A text from outside as one printable line: what a terminal could interpret is escaped. */
export function printable(text: string): string {
  return text.replace(unprintable, (character) => `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`);
}

/** The same for a text of several lines. */
export function printableLines(text: string): string {
  return text.split("\n").map(printable).join("\n");
}

/** The same JSON in one printable line. */
export function printableJsonLine(json: string): string {
  return json.replace(unprintable, (character) => character.split("").map(escapedUnit).join(""));
}

/** A text as one quoted word of a shell. `printf` makes the characters that are no printable ASCII. */
export function shellWord(text: string): string {
  if (/^[\w.:/@%+=,][\w.:/@%+=,-]*$/.test(text)) return text;
  if (/^[ -~]*$/.test(text)) return `'${text.replaceAll("'", `'\\''`)}'`;
  const octets = [...new TextEncoder().encode(text)].map((octet) => `\\${octet.toString(8).padStart(3, "0")}`);
  return `"$(printf '${octets.join("")}')"`;
}

/** A value as JSON in lines of printable ASCII. */
export function printableJson(value: unknown): string {
  return JSON.stringify(value, undefined, 2).replace(/[^\n -~]/g, escapedUnit);
}

/** One UTF-16 code unit as JSON escapes it. */
export function escapedUnit(unit: string): string {
  return `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
}
