import { posix } from "node:path";
import packageJson from "./package.json" with { type: "json" };

// The modules of src/, and what each may import. The linter's rules are generated from this list; a test tries each rule with every file.

/** One folder of `src/`. */
export interface Module {
  /** Other modules, at most eight. Every module may also import `base`. */
  readonly modules: readonly string[];
  /** Packages; `node:` stands for all of Node's modules, so a module without it runs anywhere. */
  readonly packages: readonly string[];
}

export const modules: Readonly<Record<string, Module>> = {
  base: { modules: [], packages: [] },
  "keys/crypto": { modules: [], packages: ["jose", "#crypto", "node:"] },
  "keys/jwk": { modules: [], packages: ["jose", "#crypto"] },
  "keys/signer": { modules: ["keys/jwk"], packages: ["jose", "#crypto"] },
  "keys/kms": {
    modules: ["keys/crypto", "keys/jwk", "keys/signer"],
    packages: ["jose", "node:", "@aws-sdk/client-kms", "@azure/identity", "@azure/keyvault-keys", "@google-cloud/kms"],
  },
  "keys/pkcs11": { modules: ["keys/jwk", "keys/signer"], packages: ["jose", "node:", "pkcs11js"] },
  keys: { modules: ["keys/kms", "keys/pkcs11", "keys/signer"], packages: [] },

  publish: { modules: ["keys/jwk", "keys/signer"], packages: ["jose", "#crypto"] },

  "verify/token": { modules: ["keys/crypto", "keys/jwk"], packages: ["jose", "#crypto"] },
  "verify/http-cache": { modules: [], packages: [] },
  "verify/relying-party": { modules: ["keys/crypto", "keys/jwk", "verify/http-cache"], packages: ["jose"] },
  "verify/client": {
    modules: ["keys/crypto", "keys/jwk", "verify/http-cache", "verify/relying-party", "verify/token"],
    packages: ["jose"],
  },
  "verify/bearer": {
    modules: [
      "keys/crypto",
      "keys/jwk",
      "publish",
      "verify/bearer/adapters",
      "verify/client",
      "verify/http-cache",
      "verify/relying-party",
      "verify/token",
    ],
    packages: ["jose", "#crypto"],
  },
  "verify/bearer/adapters": {
    modules: ["publish", "verify/bearer"],
    packages: ["@modelcontextprotocol/sdk", "@nestjs/common"],
  },

  "sign/token": { modules: ["keys/jwk", "keys/signer", "publish", "verify/token"], packages: ["jose", "#crypto"] },
  "sign/client": { modules: ["sign/token"], packages: ["node:"] },

  provider: { modules: ["keys/jwk", "keys/signer", "publish", "sign/token", "verify/token"], packages: [] },
  "provider/adapters": {
    modules: ["keys/jwk", "provider", "publish", "sign/token"],
    packages: ["jose", "node:", "oidc-provider"],
  },
  node: {
    modules: ["keys/jwk", "keys/signer", "publish", "verify/http-cache"],
    packages: ["jose", "node:", "ipaddr.js"],
  },

  rotation: {
    modules: ["provider", "publish", "rotation/explain", "rotation/manager", "rotation/rules", "rotation/saved-set"],
    packages: [],
  },
  "rotation/rules": { modules: ["keys/jwk"], packages: [] },
  "rotation/explain": {
    modules: ["doctor/verifiers", "rotation/custody", "rotation/rules", "rotation/store"],
    packages: [],
  },
  "rotation/store": { modules: [], packages: [] },
  "rotation/store/sqlite": { modules: ["rotation/store"], packages: ["node:"] },
  "rotation/store/postgres": { modules: ["rotation/store", "rotation/store/databases"], packages: ["node:", "pg"] },
  "rotation/store/databases": { modules: ["rotation/store"], packages: ["@libsql/client", "mysql2", "redis"] },
  "rotation/custody": { modules: ["keys/jwk", "rotation/rules", "rotation/store"], packages: ["jose"] },
  "rotation/manager": {
    modules: [
      "keys/jwk",
      "keys/signer",
      "provider",
      "publish",
      "rotation/custody",
      "rotation/explain",
      "rotation/rules",
      "rotation/store",
    ],
    packages: ["jose"],
  },
  "rotation/saved-set": {
    modules: ["keys/jwk", "provider", "publish", "rotation/custody", "rotation/manager", "rotation/rules"],
    packages: ["jose"],
  },
  "rotation/issuers": {
    modules: [
      "provider",
      "publish",
      "rotation/custody",
      "rotation/explain",
      "rotation/manager",
      "rotation/rules",
      "rotation/store",
      "sign/token",
    ],
    packages: [],
  },

  "doctor/codes": { modules: [], packages: [] },
  "doctor/verifiers": { modules: ["doctor"], packages: [] },
  doctor: { modules: ["doctor/checks", "doctor/codes", "doctor/verifiers", "keys/crypto"], packages: ["jose"] },
  "doctor/checks": { modules: ["doctor"], packages: [] },
  "doctor/node": { modules: ["doctor", "node"], packages: ["jose", "node:"] },

  testing: { modules: ["keys/crypto", "keys/signer", "rotation/store"], packages: ["jose", "#crypto", "node:"] },

  "service/config": {
    modules: [
      "keys",
      "keys/pkcs11",
      "keys/signer",
      "node",
      "publish",
      "rotation/custody",
      "rotation/rules",
      "rotation/store",
    ],
    packages: ["node:"],
  },
  "service/store": {
    modules: [
      "node",
      "rotation/custody",
      "rotation/rules",
      "rotation/store",
      "rotation/store/databases",
      "rotation/store/postgres",
      "rotation/store/sqlite",
      "service/config",
    ],
    packages: ["node:"],
  },
  "service/listen": { modules: ["publish"], packages: ["node:"] },
  "service/signing": {
    modules: ["keys/jwk", "publish", "service/config", "service/keys", "service/listen", "sign/token"],
    packages: ["node:"],
  },
  "service/keys": {
    modules: [
      "node",
      "publish",
      "rotation/custody",
      "rotation/manager",
      "rotation/rules",
      "rotation/saved-set",
      "service/config",
      "service/store",
    ],
    packages: ["node:", "package.json"],
  },
  "service/token": {
    modules: [
      "node",
      "publish",
      "rotation/custody",
      "rotation/manager",
      "rotation/rules",
      "service/config",
      "service/store",
      "sign/token",
    ],
    packages: [],
  },
  "service/targets": {
    modules: ["publish", "rotation/rules", "rotation/store/sqlite", "service/config", "service/keys"],
    packages: ["node:", "@aws-sdk/client-s3"],
  },
  "service/admin": {
    modules: [
      "publish",
      "rotation/explain",
      "rotation/manager",
      "rotation/rules",
      "service/config",
      "service/keys",
      "service/listen",
    ],
    packages: ["node:", "package.json", "prom-client"],
  },
  "service/admin/page": { modules: ["rotation/explain", "service/admin"], packages: ["node:"] },
  "service/guard": {
    modules: [
      "publish",
      "rotation/store/databases",
      "service/admin",
      "service/config",
      "service/listen",
      "verify/bearer",
      "verify/relying-party",
      "verify/token",
    ],
    packages: ["node:"],
  },
  "service/endpoint": {
    modules: [
      "provider",
      "publish",
      "service/admin",
      "service/admin/page",
      "service/config",
      "service/keys",
      "service/listen",
      "service/signing",
    ],
    packages: [],
  },

  cli: {
    modules: [
      "cli/doctor",
      "cli/managed-keys",
      "cli/serve",
      "cli/store",
      "keys/signer",
      "node",
      "service/config",
      "service/guard",
    ],
    packages: ["jose", "node:", "commander", "package.json"],
  },
  "cli/serve": {
    modules: [
      "cli",
      "cli/managed-keys",
      "rotation/custody",
      "rotation/store",
      "service/config",
      "service/targets",
      "service/endpoint",
      "service/token",
    ],
    packages: ["commander"],
  },
  "cli/doctor": {
    modules: [
      "cli",
      "doctor",
      "doctor/node",
      "keys/crypto",
      "keys/jwk",
      "testing",
      "verify/relying-party",
      "verify/token",
    ],
    packages: ["jose", "node:", "commander"],
  },
  "cli/store": {
    modules: [
      "cli",
      "cli/managed-keys",
      "rotation/custody",
      "rotation/explain",
      "rotation/rules",
      "rotation/store/postgres",
      "service/config",
      "service/store",
    ],
    packages: ["commander", "node:"],
  },
  "cli/files": {
    modules: [
      "cli",
      "cli/managed-keys",
      "keys/jwk",
      "keys/signer",
      "node",
      "publish",
      "rotation/custody",
      "rotation/rules",
    ],
    packages: ["jose", "node:", "commander"],
  },
  "cli/managed-keys": {
    modules: [
      "cli",
      "cli/files",
      "rotation/custody",
      "rotation/explain",
      "rotation/manager",
      "rotation/rules",
      "service/config",
      "service/store",
    ],
    packages: ["node:", "commander"],
  },
};

/** Everything that a module could import from outside `src/`. */
export const packages: readonly string[] = [
  "node:",
  "package.json",
  ...Object.keys({ ...packageJson.dependencies, ...packageJson.peerDependencies }),
  ...Object.keys(packageJson.imports),
];

const escaped = (text: string): string => text.replaceAll(/[.$^*+?()[\]{}|\\]/g, "\\$&");

/** A package, or a part of it, for example `jose/key/import`. */
function packagePattern(name: string, folder: string): string {
  if (name === "node:") return "node:.+";
  if (name === "package.json") return escaped(posix.relative(folder, "package.json"));
  return `${escaped(name)}(?:/.+)?`;
}

/** Returns a pattern for everything that the files of a module must not import, by the shortest relative path. */
export function forbiddenImports(name: string, module: Module): string {
  const folder = `src/${name}`;
  const allowed = new Set([name, "base", ...module.modules, ...module.packages]);
  const files = Object.keys(modules).map((other) => {
    const path = posix.relative(folder, `src/${other}`);
    return [other, `${escaped(path.startsWith(".") ? path : `./${path}`)}/[\\w-]+\\.ts`] as const;
  });
  const all = [...files, ...packages.map((other) => [other, packagePattern(other, folder)] as const)];
  return `^(?:${all.flatMap(([other, pattern]) => (allowed.has(other) ? [] : [pattern])).join("|")})$`;
}
