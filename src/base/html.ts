import { printableLine } from "./printable.ts";

/** HTML markup, as opposed to plain text. */
export class Html {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

type Part = Html | string | number | undefined | readonly Html[];

const references: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};

/**
 * Creates markup from a template. Escapes strings so that they are safe in elements and quoted attributes, shows
 * control characters as text, and inserts markup unchanged.
 */
export function html(template: TemplateStringsArray, ...parts: readonly Part[]): Html {
  return new Html(String.raw({ raw: template }, ...parts.map(markupOf)));
}

/** Creates markup for a multi-line string, such as a document. */
export function lines(text: string): Html {
  return new Html(text.split("\n").map(escaped).join("\n"));
}

function markupOf(part: Part): string {
  if (part === undefined) return "";
  if (part instanceof Html) return part.text;
  if (typeof part === "object") return part.map(({ text }) => text).join("");
  return escaped(String(part));
}

const escaped = (text: string): string =>
  printableLine(text).replace(/[&<>"']/g, (character) => references[character] ?? "");
