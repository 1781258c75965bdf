/**
 * Folds the case of a name the way the most lenient parser would. Some parsers fold `İ` to `i`, but JavaScript keeps
 * the dot. The name is converted to upper case first, because letters such as `ſ` and `ı` have ASCII capitals.
 *
 * @see Unicode 3.13, Default Case Algorithms
 */
export function folded(name: string): string {
  return name.replaceAll("\u0130", "i").toUpperCase().toLowerCase();
}

const maxFound = 100;

/**
 * Returns the names of duplicate members in valid JSON, one entry for each extra occurrence.
 *
 * @see RFC 8259 section 4
 */
export function duplicateMembers(text: string): string[] {
  const found: string[] = [];
  // The member names of each object or array that is still open. A set is created when the first name is read, so an
  // array has `undefined`.
  const open: (Set<string> | undefined)[] = [];
  for (let at = 0; at < text.length && found.length < maxFound; at += 1) {
    const character = text[at];
    if (character === "{" || character === "[") open.push(undefined);
    else if (character === "}" || character === "]") open.pop();
    else if (character === '"') {
      const end = endOfString(text, at);
      if (isName(text, end)) {
        const names = (open[open.length - 1] ??= new Set());
        const name = JSON.parse(text.slice(at, end)) as string;
        if (names.has(name)) found.push(name);
        names.add(name);
      }
      at = end - 1;
    }
  }
  return found;
}

/** Returns the index just after the closing quote. */
function endOfString(text: string, begin: number): number {
  let at = begin + 1;
  while (at < text.length && text[at] !== '"') at += text[at] === "\\" ? 2 : 1;
  return at + 1;
}

/** Reports whether the next character after any whitespace is a colon. */
function isName(text: string, from: number): boolean {
  let at = from;
  while (/\s/.test(text[at] ?? "")) at += 1;
  return text[at] === ":";
}
