import { posix } from "node:path";
import packageJson from "./package.json" with { type: "json" };

// Which rooms of src/ may import which. The linter's rules are made from this list, and a test tries each of them with every file there is.

/** One folder of `src/`. */
export interface Room {
  /** Other rooms, at most eight. Every room may also import `base`. */
  readonly rooms: readonly string[];
  /** Packages; `node:` stands for all modules of Node, so a room without it runs anywhere. */
  readonly packages: readonly string[];
}

export const rooms: Readonly<Record<string, Room>> = {
  base: { rooms: [], packages: [] },
  "keys/crypto": { rooms: [], packages: ["jose", "#crypto", "node:"] },
  "keys/jwk": { rooms: [], packages: ["jose", "#crypto"] },
  "keys/signer": { rooms: ["keys/jwk"], packages: ["jose", "#crypto"] },
  "keys/kms": {
    rooms: ["keys/crypto", "keys/jwk", "keys/signer"],
    packages: ["jose", "node:", "@aws-sdk/client-kms", "@azure/identity", "@azure/keyvault-keys", "@google-cloud/kms"],
  },
  "keys/pkcs11": { rooms: ["keys/jwk", "keys/signer"], packages: ["jose", "node:", "pkcs11js"] },
  keys: { rooms: ["keys/kms", "keys/pkcs11", "keys/signer"], packages: [] },

  publish: { rooms: ["keys/jwk", "keys/signer"], packages: ["jose", "#crypto"] },

  "verify/token": { rooms: ["keys/crypto", "keys/jwk"], packages: ["jose", "#crypto"] },
  "verify/relying-party": { rooms: ["keys/crypto", "keys/jwk"], packages: ["jose"] },
  "verify/client": { rooms: ["keys/crypto", "keys/jwk", "verify/relying-party", "verify/token"], packages: ["jose"] },
  "verify/bearer": {
    rooms: [
      "keys/crypto",
      "keys/jwk",
      "publish",
      "verify/bearer/faces",
      "verify/client",
      "verify/relying-party",
      "verify/token",
    ],
    packages: ["jose", "#crypto"],
  },
  "verify/bearer/faces": {
    rooms: ["publish", "verify/bearer"],
    packages: ["@modelcontextprotocol/sdk", "@nestjs/common"],
  },

  "sign/token": { rooms: ["keys/jwk", "keys/signer", "publish", "verify/token"], packages: ["jose", "#crypto"] },
  "sign/client": { rooms: ["sign/token"], packages: ["node:"] },

  provider: { rooms: ["keys/jwk", "keys/signer", "publish", "sign/token", "verify/token"], packages: [] },
  "provider/adapters": {
    rooms: ["keys/jwk", "provider", "publish", "sign/token"],
    packages: ["jose", "node:", "oidc-provider"],
  },
  node: {
    rooms: ["keys/jwk", "keys/signer", "publish", "verify/relying-party"],
    packages: ["jose", "node:", "ipaddr.js"],
  },

  "rotation/rules": { rooms: ["keys/jwk"], packages: [] },
  "rotation/explain": { rooms: ["doctor/verifiers", "rotation/custody", "rotation/rules"], packages: [] },
  "rotation/store": { rooms: [], packages: [] },
  "rotation/store/sqlite": { rooms: ["rotation/store"], packages: ["node:"] },
  "rotation/store/postgres": { rooms: ["rotation/store", "rotation/store/databases"], packages: ["node:", "pg"] },
  "rotation/store/databases": { rooms: ["rotation/store"], packages: ["@libsql/client", "mysql2", "redis"] },
  "rotation/custody": { rooms: ["keys/jwk", "rotation/rules", "rotation/store"], packages: ["jose"] },
  "rotation/manager": {
    rooms: ["keys/jwk", "keys/signer", "provider", "publish", "rotation/custody", "rotation/rules", "rotation/store"],
    packages: ["jose"],
  },
  "rotation/issuers": {
    rooms: [
      "provider",
      "publish",
      "rotation/custody",
      "rotation/manager",
      "rotation/rules",
      "rotation/store",
      "sign/token",
    ],
    packages: [],
  },

  "doctor/codes": { rooms: [], packages: [] },
  "doctor/verifiers": { rooms: ["doctor"], packages: [] },
  doctor: { rooms: ["doctor/checks", "doctor/codes", "doctor/verifiers", "keys/crypto"], packages: ["jose"] },
  "doctor/checks": { rooms: ["doctor"], packages: [] },
  "doctor/node": { rooms: ["doctor", "node"], packages: ["jose", "node:"] },

  testing: { rooms: ["keys/crypto", "keys/signer", "rotation/store"], packages: ["jose", "#crypto", "node:"] },

  "service/config": {
    rooms: [
      "keys",
      "keys/pkcs11",
      "keys/signer",
      "node",
      "publish",
      "rotation/custody",
      "rotation/rules",
      "rotation/store/postgres",
    ],
    packages: ["node:"],
  },
  "service/store": {
    rooms: [
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
  "service/listen": { rooms: ["publish"], packages: ["node:"] },
  "service/signing": {
    rooms: ["keys/jwk", "publish", "service/config", "service/keys", "service/listen", "sign/token"],
    packages: ["node:"],
  },
  "service/keys": {
    rooms: [
      "node",
      "publish",
      "rotation/custody",
      "rotation/manager",
      "rotation/rules",
      "service/config",
      "service/store",
      "sign/token",
    ],
    packages: ["jose", "node:", "package.json"],
  },
  "service/copies": {
    rooms: ["publish", "rotation/rules", "rotation/store/sqlite", "service/config", "service/keys"],
    packages: ["node:", "@aws-sdk/client-s3"],
  },
  "service/admin": {
    rooms: [
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
  "service/admin/page": { rooms: ["rotation/explain", "service/admin"], packages: ["node:"] },
  "service/endpoint": {
    rooms: [
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
    rooms: ["cli/doctor", "cli/keys", "cli/serve", "cli/store", "keys", "keys/signer", "node", "service/config"],
    packages: ["jose", "node:", "commander", "package.json"],
  },
  "cli/serve": {
    rooms: [
      "cli",
      "cli/keys",
      "rotation/custody",
      "rotation/store",
      "service/config",
      "service/copies",
      "service/endpoint",
      "service/keys",
    ],
    packages: ["commander"],
  },
  "cli/doctor": {
    rooms: [
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
    rooms: [
      "cli",
      "cli/keys",
      "rotation/custody",
      "rotation/explain",
      "rotation/rules",
      "rotation/store/postgres",
      "service/config",
      "service/store",
    ],
    packages: ["commander"],
  },
  "cli/files": {
    rooms: ["cli", "cli/keys", "keys/jwk", "keys/signer", "node", "publish", "rotation/custody", "rotation/rules"],
    packages: ["jose", "node:", "commander"],
  },
  "cli/keys": {
    rooms: [
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

/** All that a room could import from outside of `src/`. */
export const packages: readonly string[] = [
  "node:",
  "package.json",
  ...Object.keys({ ...packageJson.dependencies, ...packageJson.peerDependencies }),
  ...Object.keys(packageJson.imports),
];

const escaped = (text: string): string => text.replaceAll(/[.$^*+?()[\]{}|\\]/g, "\\$&");

/** A package, or a part of it such as `jose/key/import`. */
function packagePattern(name: string, folder: string): string {
  if (name === "node:") return "node:.+";
  if (name === "package.json") return escaped(posix.relative(folder, "package.json"));
  return `${escaped(name)}(?:/.+)?`;
}

/** Matches all that the files of a room may not import, by the shortest relative path. */
export function forbiddenImports(name: string, room: Room): string {
  const folder = `src/${name}`;
  const allowed = new Set([name, "base", ...room.rooms, ...room.packages]);
  const files = Object.keys(rooms).map((other) => {
    const path = posix.relative(folder, `src/${other}`);
    return [other, `${escaped(path.startsWith(".") ? path : `./${path}`)}/[\\w-]+\\.ts`] as const;
  });
  const all = [...files, ...packages.map((other) => [other, packagePattern(other, folder)] as const)];
  return `^(?:${all.flatMap(([other, pattern]) => (allowed.has(other) ? [] : [pattern])).join("|")})$`;
}
