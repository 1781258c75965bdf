/** The value of a JSON text; `undefined` for what is none. No error can quote the text. */
export function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
