/**
 * Returns the known name that was probably meant, if the given name looks like a misspelling or a prefix of a known
 * name.
 */
export function nearest(name: string, known: readonly string[]): string | undefined {
  const most = Math.max(2, name.length / 3);
  const [best] = known
    // Skips names whose lengths differ too much: they need more edits, and an attacker may send a very long name.
    .filter((other) => isBeginning(name, other) || Math.abs(name.length - other.length) <= most)
    .map((other) => ({ other, edits: Math.min(editDistance(name, other), isBeginning(name, other) ? most : Infinity) }))
    .filter(({ edits }) => edits <= most)
    .toSorted((a, b) => a.edits - b.edits);
  return best?.other;
}

/**
 * Reports whether only the end of the name, such as its unit, is missing, as in clockTolerance for
 * clockToleranceSeconds.
 */
const isBeginning = (name: string, other: string): boolean => name.length > 3 && other.startsWith(name);

/** Returns the Levenshtein distance: the number of characters to insert, remove or replace. */
function editDistance(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, column) => column);
  for (const [line, letter] of from.split("").entries()) {
    const next = [line + 1];
    for (const [column, other] of to.split("").entries()) {
      const [replaced = 0, removed = 0, inserted = 0] = [row[column], row[column + 1], next[column]];
      next.push(Math.min(replaced + (letter === other ? 0 : 1), removed + 1, inserted + 1));
    }
    row = next;
  }
  return row.at(-1) ?? 0;
}
