const blank = /[ \t\n\r]*/y;
const token =
  /[[\]{},:]|"[ !#-[\]-\uffff]*(?:\\(?:["\\/bfnrt]|u[\dA-Fa-f]{4})[ !#-[\]-\uffff]*)*"|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null/y;

/**
 * The index of the first token that breaks the grammar of JSON, or the end of a text that is cut off; `undefined` for valid JSON.
 * `JSON.parse` names the place of some mistakes only.
 *
 * @see RFC 8259
 */
export function faultOf(text: string): number | undefined {
  // Allowed next: "v" for a value, "n" for a name, or the character itself.
  let allowed = "v";
  const open: ("{" | "[")[] = [];
  for (let at = 0; ;) {
    at += matchAt(blank, text, at).length;
    if (at === text.length) return allowed === "" ? undefined : at;
    const found = matchAt(token, text, at);
    const mark = /^[\]},:]$/.test(found) ? found : found.startsWith('"') && allowed.startsWith("n") ? "n" : "v";
    if (found === "" || !allowed.includes(mark)) return at;
    at += found.length;
    if (found === "{" || found === "[") open.push(found);
    if (mark === "]" || mark === "}") open.pop();
    const inside = open.at(-1);
    if (found === "{") allowed = "n}";
    else if (found === "[") allowed = "v]";
    else if (mark === "n") allowed = ":";
    else if (mark === ":") allowed = "v";
    else if (mark === ",") allowed = inside === "{" ? "n" : "v";
    else allowed = inside === undefined ? "" : inside === "{" ? ",}" : ",]";
  }
}

function matchAt(pattern: RegExp, text: string, index: number): string {
  pattern.lastIndex = index;
  return pattern.exec(text)?.[0] ?? "";
}
