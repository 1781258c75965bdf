// Writes the samples, which are files in examples/docs, into the pages that show them: node scripts/samples.ts

import { globSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";

const root = resolve(import.meta.dirname, "..");
const sampleBlock = /^<!-- (examples\/\S+) -->\n```(\w+)\n.*?^```$/gms;

/** Pages that can show samples. */
export const pages: readonly string[] = globSync(["*.md", "docs/**/*.md"], { cwd: root });

export const textOf = (file: string): string => readFileSync(join(root, file), "utf8");

/** Returns a page with the current text of each of its samples. */
export const withSamples = (page: string): string =>
  page.replaceAll(
    sampleBlock,
    (_, file: string, language: string) => `<!-- ${file} -->\n\`\`\`${language}\n${textOf(file)}\`\`\``,
  );

if (import.meta.main) for (const page of pages) writeFileSync(join(root, page), withSamples(textOf(page)));
