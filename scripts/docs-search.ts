import { DocumentReflection, type Reflection, Slugger } from "typedoc";

/** A heading of a page and the text below it: what the search of the site finds. */
export class Section extends DocumentReflection {
  readonly page: Reflection;
  /** Of the heading; the first one of a page is the page itself. */
  readonly anchor: string;

  constructor(page: Reflection, heading: string, text: string, anchor: string) {
    super(heading, page, [{ kind: "text", text }], {});
    this.page = page;
    this.anchor = anchor;
  }
}

/** The sections of a page of Markdown, each with the boost of the page. */
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
    // Who looks for a code or an alert knows its whole name; the table of options of a function comes after the function.
    if (/^[a-z]+[A-Z]\w*$/.test(heading)) section.relevanceBoost = 0.5;
    else section.relevanceBoost = /^(?:[A-Z]+_\w+|Jwksd\w+)$/.test(heading) ? 1 : boost;
    return section;
  });
}

/** Without the addresses of links, which no reader sees, and without backticks. */
const plain = (markdown: string): string => markdown.replaceAll(/\[([^\]]+)\]\([^)]*\)/g, "$1").replaceAll("`", "");
