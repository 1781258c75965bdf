// npm run docs: the site in .site/, from docs/ and the docstrings of all entry points. A warning is an error.
import { readFileSync } from "node:fs";
import { registerHooks } from "node:module";
import { basename } from "node:path";
import type { DocumentReflection, Reflection } from "typedoc";
import packageJson from "../package.json" with { type: "json" };

// TypeDoc needs the JavaScript API of a compiler before TypeScript 7.
registerHooks({
  resolve: (specifier, context, next) => next(specifier === "typescript" ? "typescript-5.9" : specifier, context),
});
const { Application, Comment, CommentTag, Converter, KindRouter } = await import("typedoc");

const entryPoints = Object.values(packageJson.exports)
  .filter((entry) => typeof entry !== "string")
  .map(({ types }) => types.replace("./dist/", "src/").replace(".d.ts", ".ts"));

/** The pages in the order of docs/README.md, each with the heading that it is under. */
const pages = new Map<string, string>();
for (const section of readFileSync("docs/README.md", "utf8").split(/^## /m).slice(1)) {
  const heading = section.slice(0, section.indexOf("\n"));
  for (const [, link = ""] of section.matchAll(/^- \[.+?\]\((\S+?\.md)\)/gm)) pages.set(`docs/${link}`, heading);
}
const headings = [...new Set(pages.values())];

const app = await Application.bootstrap({
  name: "jwksd",
  readme: "README.md",
  out: ".site",
  tsconfig: "tsconfig.build.json",
  entryPoints,
  projectDocuments: ["docs/README.md", ...pages.keys()],
  router: "pages",
  excludeInternal: true,
  includeHierarchySummary: false,
  disableSources: true,
  sort: ["documents-first", "alphabetical"],
  categorizeByGroup: false,
  defaultCategory: "Reference",
  categoryOrder: [...headings, "Reference"],
  navigation: { includeCategories: true },
  searchInDocuments: true,
  searchGroupBoosts: { Documents: 2 },
  treatWarningsAsErrors: true,
  treatValidationWarningsAsErrors: true,
  validation: { notExported: true, invalidLink: true, invalidPath: true, rewrittenLink: true },
  // Helpers of a type, and shapes that may change.
  intentionallyNotExported: ["ClassName", "RefusedType", "Table", "ecAlgs", "rsaAlgs"],
  highlightLanguages: [
    "bash",
    "c",
    "go",
    "hcl",
    "http",
    "ini",
    "java",
    "javascript",
    "json",
    "nginx",
    "php",
    "python",
    "ruby",
    "typescript",
    "yaml",
  ],
  ignoredHighlightLanguages: ["caddy", "text"],
});

/** Where the address of a page comes from: its file; what it is called: its first heading. */
const files = new Map<DocumentReflection, string>();
const paths = ["docs/README.md", ...pages.keys()];
app.converter.on(Converter.EVENT_CREATE_DOCUMENT, (_context, document) => {
  const path = paths[files.size] ?? "";
  files.set(document, path === "docs/README.md" ? "index" : basename(path, ".md"));
  document.name = (/^# (.+)$/m.exec(readFileSync(path, "utf8"))?.[1] ?? path).replaceAll("`", "");
  document.comment ??= new Comment();
  document.comment.blockTags.push(new CommentTag("@category", [{ kind: "text", text: pages.get(path) ?? "none" }]));
});
class Pages extends KindRouter {
  protected override getIdealBaseName(reflection: Reflection): string {
    const file = reflection.isDocument() ? files.get(reflection) : undefined;
    return file === undefined ? super.getIdealBaseName(reflection) : `pages/${file}`;
  }
}
app.renderer.defineRouter("pages", Pages);

const project = await app.convert();
if (project === undefined) process.exit(1);
app.validate(project);
await app.generateOutputs(project);
if (app.logger.hasWarnings() || app.logger.hasErrors()) process.exit(1);
