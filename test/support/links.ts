import { existsSync } from "node:fs";
import { glob, readFile } from "node:fs/promises";
import { dirname, join, normalize } from "node:path";

/** Returns the text outside code blocks. */
const prose = (markdown: string): string => markdown.replaceAll(/^```.*?^```$/gms, "");

/** Returns the anchors of headings, as forges make them: lower case, no punctuation, hyphens for spaces, a number for a repetition. */
function anchorsOf(markdown: string): Set<string> {
  const anchors = new Set<string>();
  for (const [, heading = ""] of prose(markdown).matchAll(/^#+ (.+)$/gm)) {
    const text = heading.replaceAll(/\[([^\]]*)\]\([^)]*\)/g, "$1");
    const slug = text
      .trim()
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}_\- ]/gu, "")
      .replaceAll(" ", "-");
    let anchor = slug;
    for (let count = 1; anchors.has(anchor); count++) anchor = `${slug}-${count}`;
    anchors.add(anchor);
  }
  return anchors;
}

export const linksOf = (markdown: string): string[] =>
  [...prose(markdown).matchAll(/\]\(([^)\s]+)[^)]*\)/g)].map(([, link = ""]) => link);

/** Returns the pages of a clone, a package or an archive: text by path. */
export async function pagesIn(folder: string): Promise<ReadonlyMap<string, string>> {
  const pages = new Map<string, string>();
  for await (const file of glob("{*,docs/**/*}.md", { cwd: folder }))
    pages.set(file, await readFile(join(folder, file), "utf8"));
  return pages;
}

/** Returns the links of the pages in a folder whose file or heading does not exist there, as "page: link". */
export async function brokenLinks(folder: string): Promise<string[]> {
  const pages = await pagesIn(folder);
  const broken: string[] = [];
  for (const [file, text] of pages) {
    for (const link of linksOf(text).filter((link) => !URL.canParse(link))) {
      const [path = "", anchor] = link.split("#");
      const target = path === "" ? file : normalize(join(dirname(file), path));
      const page = pages.get(target);
      const exists =
        page === undefined ? existsSync(join(folder, target)) : anchor === undefined || anchorsOf(page).has(anchor);
      if (!exists) broken.push(`${file}: ${link}`);
    }
  }
  return broken;
}
