import { styleText } from "node:util";
import { type Io, print } from "./io.ts";

export type Color = Parameters<typeof styleText>[0];

/**
 * Wraps text into lines of at most `columns` characters, each indented by `indent` spaces. A word longer than that gets
 * its own line.
 */
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

export interface Terminal {
  readonly columns: number;
  readonly color: boolean;
  readonly ascii: boolean;
}

/** Colors text, if a color is given. */
export function colored(text: string, color: Color | undefined): string {
  return color === undefined ? text : styleText(color, text, { validateStream: false });
}

/**
 * Returns an output's capabilities: its width, whether to use color (only on a terminal, and only if NO_COLOR is not
 * set), and whether it is limited to ASCII.
 */
export function terminalOf({ stdout, environment }: Pick<Io, "stdout" | "environment">): Terminal {
  const isTerminal = stdout.isTTY === true;
  const columns = Number(environment["COLUMNS"]);
  const locale = environment["LC_ALL"] || environment["LC_CTYPE"] || environment["LANG"] || "";
  return {
    columns: stdout.columns ?? (Number.isInteger(columns) && columns > 0 ? columns : 80),
    // https://no-color.org: any non-empty value disables color.
    color: isTerminal && (environment["NO_COLOR"] ?? "") === "" && environment["TERM"] !== "dumb",
    ascii: isTerminal && environment["TERM"] === "linux" ? true : /^(C|POSIX)$/.test(locale),
  };
}

/** Prints wrapped paragraphs, each preceded by a blank line. */
export function printParagraphs(io: Io, paragraphs: readonly string[]): void {
  const { columns } = terminalOf(io);
  for (const text of paragraphs) print(io, ["", ...indented(text, columns, 0)].join("\n"));
}

/** Formats rows of cells as lines with aligned columns. */
export function aligned(rows: readonly (readonly string[])[]): string[] {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => (row[column] ?? "").length)));
  return rows.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join("  ")
      .trimEnd(),
  );
}
