// npm run docs: generates the site in .site/ from docs/ and the docstrings of all entry points. A warning is an error.

import { readFileSync } from "node:fs";
import { registerHooks } from "node:module";
import { basename } from "node:path";
import type { DocumentReflection, Reflection, RouterTarget } from "typedoc";
import packageJson from "../package.json" with { type: "json" };

// TypeDoc needs the JavaScript API of TypeScript 6 or earlier.
registerHooks({
  resolve: (specifier, context, next) => next(specifier === "typescript" ? "typescript-5.9" : specifier, context),
});
const { Application, Comment, CommentTag, Converter, IndexEvent, KindRouter, ReflectionKind } = await import("typedoc");
const { Section, sectionsOf } = await import("./docs-search.ts");

const entryPoints = new Map<string, string>();
for (const [path, entry] of Object.entries(packageJson.exports)) {
  if (typeof entry === "string") continue;
  entryPoints.set(path.replace(".", "jwksd"), entry.types.replace("./dist/", "src/").replace(".d.ts", ".ts"));
}

/** Types that users do not have to name, so that no entry point exports them. The reference shows their members wherever they occur. */
const shownInPlace = `
  Address AllowUrl AudienceClaim AuthConfig AwsCredentials AzureCredential CachingHeaders CertificateFacts CheckSignerOptions Claims
  ClientDocumentEvent ClientMetadata ClientMethod ClientPart ClientSigner ClientWarning CryptoKeyPair D1Answer D1Session D1Statement
  DecommissionOptions DueIssuer DueStep EcPublicJwk EndState EventRequest FailingVerifier Failure FastifyReplyLike Filling ForceOptions
  GrantedClient HonoContextLike Interval IoredisClient IssuerKey IssuerState JwkObject KeyEnd KeyObjectLike KeyState KeySubscriber KeyUse
  KeysOnDemand KnownError KoaContextLike LibsqlClient ListedIssuer LiveState MemoryStoreOptions Metadata MetricValue MysqlCallbackPool
  MysqlConnection MysqlPool NestContextLike NestRequest NestResponse OidcInstance OidcKeys PinSource PlanKey
  PlanSegment PlanStep PostgresClient PostgresPool PostgresSql PresenceList PrivateHalf Probes RedisClient RegisterUnderTest
  ReplayStoreOptions RollBackOptions RsaPublicJwk SeenToken SetFetch SignInputOptions SignerUnderTest SigningRequest SocketLike
  StoreHealth StoredKey TestAlgorithm TestProof TokenKind TokenParameters`.match(/\w+/g);

/** Pages in the order of docs/README.md, each with its section's heading. */
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
  entryPoints: [...entryPoints.values()],
  projectDocuments: ["docs/README.md", ...pages.keys()],
  router: "pages",
  excludeInternal: true,
  includeHierarchySummary: false,
  disableSources: true,
  sort: ["kind", "alphabetical"],
  kindSortOrder: ["Document", "Module", "Function", "Variable", "Class", "Interface", "TypeAlias", "Reference"],
  categorizeByGroup: false,
  defaultCategory: "Reference",
  categoryOrder: [...headings, "Reference"],
  navigation: { includeCategories: true },
  searchInDocuments: true,
  headings: { readme: false, document: false },
  customCss: "scripts/docs.css",
  treatWarningsAsErrors: true,
  treatValidationWarningsAsErrors: true,
  validation: { notExported: true, invalidLink: true, invalidPath: true, rewrittenLink: true },
  // Helper types, and shapes that may change.
  intentionallyNotExported: [
    "ClassName",
    "CodeOf",
    "Draft",
    "Fault",
    "FaultKeys",
    "Faults",
    "Optional",
    "RefusedType",
    "TokenRequired",
  ],
  // TypeDoc omits code from anchors and from the list of headings, so code in headings becomes text.
  markdownItLoader: (parser: MarkdownIt) => {
    parser.core.ruler.push("plain-headings", ({ tokens }) => {
      for (const [index, { type }] of tokens.entries()) {
        if (type !== "heading_open") continue;
        for (const part of tokens[index + 1]?.children ?? []) if (part.type === "code_inline") part.type = "text";
      }
    });
  },
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
    "toml",
    "typescript",
    "yaml",
  ],
  ignoredHighlightLanguages: ["caddy", "text"],
});

app.converter.on(Converter.EVENT_BEGIN, ({ inlineType }) => {
  for (const name of shownInPlace ?? []) inlineType.add(name);
});

/** Files of the pages. A page's URL is derived from its file, and its name from its first heading. */
const files = new Map<DocumentReflection, string>();
const paths = ["docs/README.md", ...pages.keys()];
app.converter.on(Converter.EVENT_CREATE_DOCUMENT, (_context, document) => {
  const path = paths[files.size] ?? "";
  files.set(document, path === "docs/README.md" ? "index" : basename(path, ".md"));
  document.name = (/^# (.+)$/m.exec(readFileSync(path, "utf8"))?.[1] ?? path).replaceAll("`", "");
  document.comment ??= new Comment();
  document.comment.blockTags.push(new CommentTag("@category", [{ kind: "text", text: pages.get(path) ?? "none" }]));
});

/** The part of markdown-it that is used here. */
interface MarkdownIt {
  readonly core: { readonly ruler: { push(name: string, rule: (state: { tokens: Token[] }) => void): void } };
}
interface Token {
  type: string;
  readonly children?: Token[] | null;
}

class Pages extends KindRouter {
  protected override getIdealBaseName(reflection: Reflection): string {
    const file = reflection.isDocument() ? files.get(reflection) : undefined;
    return file === undefined ? super.getIdealBaseName(reflection) : `pages/${file}`;
  }

  override getFullUrl(target: RouterTarget): string {
    if (!(target instanceof Section)) return super.getFullUrl(target);
    return (target.page.isProject() ? "index.html" : super.getFullUrl(target.page)) + target.anchor;
  }
}
app.renderer.defineRouter("pages", Pages);

const project = await app.convert();
if (project === undefined) process.exit(1);
app.validate(project);

// The menu follows docs/README.md, then the entry points in package.json. Only the reference is in alphabetical order.
// Decisions are only listed in the index, because they are for jwksd's own developers.
project.categories = project.categories?.filter(({ title }) => title !== "Decisions") ?? [];
const order = [...files.keys()].map(({ name }) => name).concat(...entryPoints.keys());
for (const { children } of project.categories) {
  children.sort((one, other) => order.indexOf(one.name) - order.indexOf(other.name));
}

/** Sections whose pages are boosted in the search. Members of types have a low weight, unless their whole name is searched for. */
const guides = new Set(["Getting started", "The library", "The service"]);
app.renderer.on(IndexEvent.PREPARE_INDEX, (event) => {
  const sections = paths.flatMap((path, index) => {
    const page = [...files.keys()][index] ?? project;
    return sectionsOf(page, readFileSync(path, "utf8"), guides.has(pages.get(path) ?? "") ? 20 : 2);
  });
  const members = event.searchResults.filter((found) => !found.isDocument());
  for (const member of members) if (!member.parent?.kindOf(ReflectionKind.Module)) member.relevanceBoost = 0.1;
  event.searchResults = [...sectionsOf(project, readFileSync("README.md", "utf8"), 20), ...sections, ...members];
});
await app.generateOutputs(project);
if (app.logger.hasWarnings() || app.logger.hasErrors()) process.exit(1);
