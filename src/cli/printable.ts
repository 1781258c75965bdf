/** A text from outside as one line that a terminal shows and does not obey: control and format characters are escaped. */
export function printable(text: string): string {
  return text.replace(
    /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu,
    (character) => `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`,
  );
}

/** A value as JSON in lines of printable ASCII; what is escaped is the same to whoever parses it. */
export function printableJson(value: unknown): string {
  return JSON.stringify(value, undefined, 2).replace(
    /[^\n -~]/g,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}
