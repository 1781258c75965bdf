import type { styleText } from "node:util";

export type Color = Parameters<typeof styleText>[0];

/** A text in lines of at most `columns` characters, each after `indent` blanks. A word that is longer has a line of its own. */
export function indented(text: string, columns: number, indent: number): string[] {
  const lines: string[] = [];
  for (const word of text.split(" ")) {
    const last = lines.at(-1);
    if (last !== undefined && indent + last.length + 1 + word.length <= columns)
      lines[lines.length - 1] = `${last} ${word}`;
    else lines.push(word);
  }
  return lines.map((line) => `${" ".repeat(indent)}${line}`);
}

/** What an output can show: its width, colours (only of a terminal, and not where NO_COLOR is set), and more than ASCII. */
export function terminalOf(
  output: { readonly isTTY?: boolean; readonly columns?: number },
  environment: Readonly<Record<string, string | undefined>>,
): { readonly columns: number; readonly color: boolean; readonly ascii: boolean } {
  const isTerminal = output.isTTY === true;
  const columns = Number(environment["COLUMNS"]);
  const locale = environment["LC_ALL"] || environment["LC_CTYPE"] || environment["LANG"] || "";
  return {
    columns: output.columns ?? (Number.isInteger(columns) && columns > 0 ? columns : 80),
    // https://no-color.org: set and not empty, whatever its value.
    color: isTerminal && (environment["NO_COLOR"] ?? "") === "" && environment["TERM"] !== "dumb",
    ascii: isTerminal && environment["TERM"] === "linux" ? true : /^(C|POSIX)$/.test(locale),
  };
}
