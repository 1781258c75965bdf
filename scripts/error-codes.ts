// Generates the page of error codes: node scripts/error-codes.ts > docs/errors.md

import { errorTable } from "../src/base/error-table.ts";

const titles: Readonly<Record<keyof typeof errorTable, string>> = {
  ConfigError: "correct the configuration",
  KeyMaterialError: "correct the key",
  SignerError: "the key cannot sign here",
  InternalError: "a bug in jwksd, or in your own store or signer",
  RotationError: "the managed keys' states do not allow the step",
  StoreError: "the store cannot be used",
  TokenError: "the token is rejected or cannot be created",
  ClientDocumentError: "a client with a metadata document is rejected",
  FetchError: "keys or metadata cannot be fetched now",
  IoError: "jwksd cannot read, write, publish or listen",
  JwksdError: "all other errors",
};

const cell = (text: string): string => text.replaceAll("|", "\\|");

const sections = Object.entries(errorTable).map(([name, rows]) => {
  const lines = Object.entries<{ when: string; remedy: string; retryable?: true }>(rows).map(
    ([code, { when, remedy, retryable }]) =>
      `| \`${code}\` | ${cell(when)} | ${cell(remedy)} | ${retryable === true ? "yes" : ""} |`,
  );
  const title = titles[name as keyof typeof errorTable];
  const head = `## \`${name}\`: ${title}\n\n| code | cause | remedy | \`retryable\` |\n|---|---|---|---|\n`;
  return `${head}${lines.join("\n")}\n`;
});

process.stdout.write(`# Error codes

Every error that jwksd throws intentionally is a \`JwksdError\` with a stable \`code\`. The message names the input and the rule, but its
wording may change. If \`retryable\` is true, the same call may succeed later without a change. A \`FetchError\` also has
\`retryAfterSeconds\`.

${sections.join("\n")}`);
