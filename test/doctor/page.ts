import { readFileSync, writeFileSync } from "node:fs";
import { ruleUrl } from "../../src/doctor/codes.ts";
import { type Code, codes } from "../../src/doctor/index.ts";
import { byFailingTokens, nameWithVersion } from "../../src/doctor/value-text.ts";
import type { FailingVerifier } from "../../src/doctor/verifiers/cited-failures.ts";
import { breaksOf } from "../../src/doctor/verifiers/failing-verifiers.ts";

const file = new URL("../../docs/doctor.md", import.meta.url);
const marked = /(?<=<!-- codes -->)[^]*(?=<!-- end of codes -->)/;

const groups: Readonly<Record<string, string>> = {
  JWKS: "Keys",
  HTTP: "Endpoint",
  TLS: "TLS",
  DISCOVERY: "Discovery",
  WATCH: "Changes over time",
};

/** Returns the page, and the page as the table of codes requires it. */
export function page(): { readonly is: string; readonly shouldBe: string } {
  const is = readFileSync(file, "utf8");
  const names = Object.keys(codes) as Code[];
  const text = Object.entries(groups).map(([prefix, title]) => {
    const paragraphs = names.filter((code) => code.startsWith(`${prefix}_`)).map(paragraph);
    return `## ${title}\n\n${paragraphs.join("\n\n")}`;
  });
  return { is, shouldBe: is.replace(marked, () => `\n\n${text.join("\n\n")}\n\n`) };
}

function paragraph(code: Code): string {
  const { severity, title, why, rule, remedy } = codes[code];
  const failing = byFailingTokens(breaksOf(code)).map(
    ({ label, verifiers }) => ` ${label}: ${verifiers.map(verifierText).join(", ")}.`,
  );
  return `### ${code}\n\n**${severity}.** ${title}. ${why} Rule: [${rule}](${ruleUrl(rule)}).${failing.join("")} **What to do:** ${remedy}`;
}

function verifierText(verifier: FailingVerifier): string {
  const { source, inSomeForms } = verifier;
  const name = nameWithVersion(verifier);
  return `${source === undefined ? name : `[${name}](${source})`}${inSomeForms === true ? " (in some cases)" : ""}`;
}

// `node test/doctor/page.ts` writes the page.
if (process.argv[1] === import.meta.filename) writeFileSync(file, page().shouldBe);
