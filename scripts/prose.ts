// Checks the prose of the repository: pages, comments, docstrings, messages and test titles. Part of `npm run lint`.
//
//   node scripts/prose.ts [PATH...]   prints file:line: phrase and what to write instead; exits with 1 if it finds anything
//
// A line that quotes one of the phrases, or needs it, is an entry in `accepted` in prose-patterns.ts, with the reason.

import { execFileSync } from "node:child_process";
import { readFile } from "node:fs/promises";
import { resolve } from "node:path";
import { accepted, phrases } from "./prose-patterns.ts";

const root = resolve(import.meta.dirname, "..");

/** Pages that a script generates are checked at their source. */
const generated = /^docs\/(?:errors|options)\.md$|^docs\/verifiers\/|^lab\/data\/|^LICENSE$/;
const isChecked = (file: string): boolean =>
  /(?:\.(?:md|m?ts|m?js|ya?ml|html|css|c|sh|py|php|rb|go|pml)|(?:^|\/)[\w-]+)$/.test(file) &&
  !generated.test(file) &&
  file !== "scripts/prose-patterns.ts";

const isAccepted = (file: string, line: string): boolean =>
  accepted.some((entry) => entry.file === file && line.includes(entry.text));

export interface Finding {
  readonly file: string;
  readonly line: number;
  readonly phrase: string;
  readonly advice: string;
}

/** Returns the findings in a file's text, in the order of its lines. */
export function findingsIn(file: string, text: string): Finding[] {
  const findings: Finding[] = [];
  const lines = text.split("\n");
  for (const [index, line] of lines.entries()) {
    if (isAccepted(file, line)) continue;
    const next = lines[index + 1] ?? "";
    for (const { pattern, before, advice } of phrases) {
      if (before?.test(next) === false) continue;
      for (const [phrase] of line.matchAll(pattern)) {
        findings.push({ file, line: index + 1, phrase: phrase.trim(), advice });
      }
    }
  }
  return findings;
}

/** Returns the findings in the tracked files at these paths; without a path, in the whole repository. */
export async function check(paths: readonly string[]): Promise<Finding[]> {
  const files = execFileSync("git", ["ls-files", "-z", "--", ...paths], { cwd: root, encoding: "utf8" }).split("\0");
  const all = await Promise.all(
    files.filter(isChecked).map(async (file) => findingsIn(file, await readFile(resolve(root, file), "utf8"))),
  );
  return all.flat();
}

if (import.meta.main) {
  const findings = await check(process.argv.slice(2));
  for (const { file, line, phrase, advice } of findings) console.log(`${file}:${line}: ${phrase}\n    ${advice}`);
  process.exitCode = findings.length > 0 ? 1 : 0;
}
