import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { glob, readFile } from "node:fs/promises";
import { dirname, join, normalize, resolve } from "node:path";
import { test } from "node:test";

// Whether a linked file is in the package is tested with the package. This is about anchors, addresses and pages that nothing links.

const root = resolve(import.meta.dirname, "../..");

/** Text outside of code blocks. */
const prose = (markdown: string): string => markdown.replaceAll(/^```.*?^```$/gms, "");

/** The anchors of headings, as forges make them: lower case, no punctuation, hyphens for spaces, a number for a repetition. */
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

const linksOf = (markdown: string): string[] =>
  [...prose(markdown).matchAll(/\]\(([^)\s]+)[^)]*\)/g)].map(([, link = ""]) => link);

const pages = new Map<string, string>();
for await (const file of glob("{*,docs/**/*}.md", { cwd: root }))
  pages.set(file, await readFile(join(root, file), "utf8"));

test("links lead to files and headings that are there", () => {
  const broken: string[] = [];
  for (const [file, text] of pages) {
    for (const link of linksOf(text).filter((link) => !URL.canParse(link))) {
      const [path = "", anchor] = link.split("#");
      const target = path === "" ? file : normalize(join(dirname(file), path));
      const page = pages.get(target);
      const isThere =
        page === undefined ? existsSync(join(root, target)) : anchor === undefined || anchorsOf(page).has(anchor);
      if (!isThere) broken.push(`${file}: ${link}`);
    }
  }
  assert.deepEqual(broken, []);
});

test("links to other sites are https addresses", () => {
  const wrong: string[] = [];
  for (const [file, text] of pages) {
    for (const link of linksOf(text).filter((link) => URL.canParse(link))) {
      const { protocol, hostname, username } = new URL(link);
      if (protocol !== "https:" || !/\.[a-z]+$/.test(hostname) || username !== "") wrong.push(`${file}: ${link}`);
    }
  }
  assert.deepEqual(wrong, []);
});

test("docs/README.md lists every page", () => {
  const listed = new Set(linksOf(pages.get("docs/README.md") ?? "").map((link) => normalize(join("docs", link))));
  const missing = [...pages.keys()].filter((file) => !listed.has(file) && !/^(?:docs\/)?README\.md$/.test(file));
  assert.deepEqual(missing, []);
});
