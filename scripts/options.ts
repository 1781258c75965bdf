// Generates the page of options from the docstrings: node scripts/options.ts > docs/options.md

import { globSync, readFileSync } from "node:fs";
import ts from "typescript-5.9";

/** Entry points and their functions that have options, with the options' types. */
const calls: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  jwksd: {
    createProvider: "ProviderOptions",
    "createProvider: endpoints": "Endpoints",
    "createProvider: signerLimits": "SignerLimits",
    "provider.sign": "SignOptions",
    "signingKey().sign": "SignInputOptions",
    verify: "VerifyOptions",
    createClientVerifier: "ClientVerifierOptions",
    createClientDocuments: "ClientDocumentsOptions",
    createClientAssertion: "ClientAssertionOptions",
    createRequestObject: "RequestObjectOptions",
    memoryReplayStore: "ReplayStoreOptions",
  },
  "jwksd/rotation": {
    createKeyManager: "KeyManagerOptions",
    "createKeyManager: initialPolicy": "RotationPolicyOptions",
    startWithSavedSet: "SavedSetOptions",
    "manager.rotate": "RotateOptions",
    "manager.rollBack": "RollBackOptions",
    "manager.decommission": "DecommissionOptions",
    "manager.activate, retire, remove": "ForceOptions",
  },
  "jwksd/issuers": { createIssuers: "IssuersOptions", "issuers.list": "ListIssuersOptions" },
  "jwksd/store": { memoryStore: "MemoryStoreOptions" },
  "jwksd/store/postgres, mysql, redis, libsql, d1, durable-object, better-auth": {
    "postgresStore, mysqlStore, redisStore, libsqlStore, d1Store, durableObjectStore, betterAuthStore": "StoreOptions",
  },
  "jwksd/store/etcd": { etcdStore: "EtcdStoreOptions" },
  "jwksd/signer": {
    openSigner: "SignerBackendOptions",
    "openSigner: pkcs11": "Pkcs11Options",
    "openSigner: awsKms": "AwsKmsOptions",
    "openSigner: azureKeyVault": "AzureKeyVaultOptions",
    "openSigner: googleKms": "GoogleKmsOptions",
    "openSigner: vaultTransit": "VaultTransitOptions",
  },
  "jwksd/testing": { createTestIssuer: "TestIssuerOptions" },
  "jwksd/testing/adapters": { defineSignerTests: "CheckSignerOptions" },
  "jwksd/bearer": {
    createBearerGuard: "BearerGuardOptions",
    "bearer.express, fastify, hono, koa, nest, upgrade, check": "Requirements",
  },
  "jwksd/relying-party": { createRemoteKeySet: "RemoteKeySetOptions" },
  "jwksd/node": { createGuardedFetch: "GuardedFetchOptions" },
  "jwksd/sign-client": { createSignClient: "SignClientOptions" },
  "jwksd/doctor/node": { observeIssuer: "ObserveOptions", watchJwkSet: "WatchOptions" },
};

/** Types that users of an option write or that a store keeps. */
const shapes = [
  "TrustedIssuer",
  "AudienceClaim",
  "KeySetStateStore",
  "KeySetState",
  "ClientDocumentState",
  "SetIfAbsent",
  "Clock",
];

/** Units of numbers, by the end of their names. */
const units: Readonly<Record<string, string>> = {
  Seconds: "seconds",
  Ms: "milliseconds",
  Days: "days",
  Bytes: "bytes",
};

const declared = new Map<string, ts.InterfaceDeclaration | ts.TypeAliasDeclaration>();
for (const file of globSync("src/**/*.ts")) {
  const source = ts.createSourceFile(file, readFileSync(file, "utf8"), ts.ScriptTarget.Latest, true);
  for (const node of source.statements)
    if (ts.isInterfaceDeclaration(node) || ts.isTypeAliasDeclaration(node)) declared.set(node.name.text, node);
}

/** Returns an interface's members, its own first and then inherited ones. */
function membersOf(name: string): ts.PropertySignature[] {
  const found = declared.get(name);
  if (found === undefined || !ts.isInterfaceDeclaration(found)) throw new Error(`no interface ${name}`);
  const bases = (found.heritageClauses ?? []).flatMap(({ types }) => types.map((type) => type.expression.getText()));
  return [...found.members.filter(ts.isPropertySignature), ...bases.flatMap(membersOf)];
}

/** Returns a type as readers need it. A function's signature is in the reference. */
function typeText(type: ts.TypeNode, name: string): string {
  if (ts.isParenthesizedTypeNode(type)) return typeText(type.type, name);
  if (ts.isFunctionTypeNode(type)) return "function";
  if (ts.isUnionTypeNode(type)) {
    const parts = type.types.filter((part) => !["null", "undefined"].includes(part.getText()));
    return [...new Set(parts.map((part) => typeText(part, name)))].join(" or ");
  }
  if (ts.isTypeOperatorNode(type)) return typeText(type.type, name);
  if (ts.isTypeReferenceNode(type) && type.typeArguments !== undefined) {
    const [first] = type.typeArguments;
    return type.typeName.getText() === "Readonly" || first === undefined ? "object" : typeText(first, name);
  }
  const text = type.getText();
  if (shapes.includes(text)) return `[\`${text}\`](#${text.toLowerCase()})`;
  if (text !== "number") return `\`${text}\``;
  return Object.entries(units).find(([end]) => name.endsWith(end))?.[1] ?? "count";
}

const cell = (text: string): string => text.replaceAll("|", "\\|");

/** Returns the row of an option. Its docstring ends with its default or with the condition on which it is required. */
function row(option: ts.PropertySignature): string {
  const name = option.name.getText();
  const [doc] = ts.getJSDocCommentsAndTags(option);
  const comment = (ts.getTextOfJSDocComment(doc?.comment) ?? "")
    .replaceAll(/\{@link (\w+)\}/g, "`$1`")
    .replaceAll(/\s+/g, " ")
    .replaceAll(/, in (?:whole )?(?:milliseconds|seconds|days|bytes)\b/g, "");
  const [, text, otherwise, required] =
    /^(.+?\.)(?: Default: (.+)\.| R(equired (?:if|unless) [^.]*)\.)?$/.exec(comment) ?? [];
  const byDefault = option.questionToken === undefined ? "required" : (otherwise ?? (required && `r${required}`));
  if (option.type === undefined || text === undefined || byDefault === undefined)
    throw new Error(`The docstring of ${name} has no first sentence or default: ${comment}`);
  return `| \`${name}\` | ${[typeText(option.type, name), byDefault, text].map(cell).join(" | ")} |`;
}

const sections = Object.entries(calls).map(([entry, types]) => {
  const tables = Object.entries(types).map(([call, type]) => {
    const rows = membersOf(type).map(row);
    return `### ${call}\n\n| option | type or unit | default | description |\n|---|---|---|---|\n${rows.join("\n")}\n`;
  });
  return `## ${entry}\n\n${tables.join("\n")}`;
});

const shapeTexts = shapes.map((name) => {
  const text = declared
    .get(name)
    ?.getFullText()
    .trim()
    .replace(/^export /m, "");
  return `### ${name}\n\n\`\`\`ts\n${text}\n\`\`\`\n`;
});

process.stdout.write(`# Options

These are the library's options. For \`jwksd serve\` and the commands, see \`jwksd help serve\` and [The service](service.md).

If an option is not required, \`null\` and \`undefined\` mean that it is not given. An unknown option or a wrong value is a \`ConfigError\`.

${sections.join("\n")}
## Types

${shapeTexts.join("\n")}`);
