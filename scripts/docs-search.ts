import { DocumentReflection, type Reflection, Slugger } from "typedoc";

/** A page's heading and the text below it, as an entry in the site's search index. */
export class Section extends DocumentReflection {
  readonly page: Reflection;
  /** Anchor of the heading; empty for the page's first heading. */
  readonly anchor: string;

  constructor(page: Reflection, heading: string, text: string, anchor: string) {
    super(heading, page, [{ kind: "text", text }], {});
    this.page = page;
    this.anchor = anchor;
  }
}

/** Returns the sections of a Markdown page, each with the page's boost. */
export function sectionsOf(page: Reflection, markdown: string, boost: number): Section[] {
  const slugger = new Slugger({ lowercase: true });
  const found: { heading: string; lines: string[] }[] = [];
  let isCode = false;
  for (const line of markdown.split("\n")) {
    if (line.startsWith("```")) isCode = !isCode;
    const [, heading] = (!isCode && /^#+ (.+)$/.exec(line)) || [];
    if (heading === undefined) found.at(-1)?.lines.push(line);
    else found.push({ heading: plain(heading), lines: [] });
  }
  return found.map(({ heading, lines }, index) => {
    const anchor = slugger.slug(heading);
    const section = new Section(page, heading, plain(lines.join("\n")), index === 0 ? "" : `#${anchor}`);
    // Codes and alerts are searched for by their whole names. A function's options table is listed after the function.
    if (/^[a-z]+[A-Z]\w*$/.test(heading)) section.relevanceBoost = 0.5;
    else section.relevanceBoost = /^(?:[A-Z]+_\w+|Jwksd\w+)$/.test(heading) ? 1 : boost;
    return section;
  });
}

/** Removes the URLs of links, which readers do not see, and backticks. */
const plain = (markdown: string): string => markdown.replaceAll(/\[([^\]]+)\]\([^)]*\)/g, "$1").replaceAll("`", "");
