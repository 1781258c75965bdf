import packageJson from "./package.json" with { type: "json" };

// Which rooms of src/ may import which. The linter's rules are made from this list, and a test breaks each of them once.

/** One folder of `src/`, or a part of one. */
export interface Room {
  /** Other rooms. */
  readonly rooms: readonly string[];
  /** Packages; `node:` stands for all modules of Node, so a room without it runs anywhere. */
  readonly packages: readonly string[];
}

/** Files of `src/` itself on which every room may build. They know no room. */
export const base = [
  "async",
  "bytes",
  "child-environment",
  "clock",
  "error-table",
  "errors",
  "json",
  "metrics",
  "optional-package",
  "options",
  "printable",
  "trace",
  "urls",
] as const;

export const rooms: Readonly<Record<string, Room>> = {
  jwk: { rooms: ["crypto"], packages: ["jose"] },
  crypto: { rooms: [], packages: ["jose"] },
  signer: { rooms: ["jwk", "crypto"], packages: ["jose"] },
  keyset: { rooms: ["jwk", "crypto", "signer"], packages: ["jose"] },
  http: { rooms: ["keyset"], packages: [] },
  token: { rooms: ["jwk", "crypto", "signer"], packages: ["jose"] },
  "relying-party": { rooms: ["jwk", "crypto"], packages: ["jose"] },
  client: { rooms: ["jwk", "crypto", "token", "relying-party"], packages: ["jose"] },
  provider: { rooms: ["crypto", "keyset", "http", "signer", "token"], packages: ["jose"] },
  "sign-server": {
    rooms: ["crypto", "keyset", "token", "provider", "store", "rotation"],
    packages: ["jose", "node:"],
  },
  "sign-client": { rooms: ["token"], packages: ["node:"] },
  doctor: { rooms: ["crypto"], packages: ["jose"] },
  store: { rooms: ["jwk"], packages: ["node:", "pg"] },
  rotation: { rooms: ["jwk", "crypto", "store"], packages: [] },
  manager: { rooms: ["jwk", "crypto", "keyset", "signer", "store", "rotation", "provider"], packages: ["jose"] },
  kms: {
    rooms: ["jwk", "crypto", "signer"],
    packages: ["jose", "node:", "@aws-sdk/client-kms", "@azure/identity", "@azure/keyvault-keys", "@google-cloud/kms"],
  },
  pkcs11: { rooms: ["jwk", "signer"], packages: ["jose", "node:", "pkcs11js"] },
  node: { rooms: ["jwk", "keyset", "signer", "relying-party"], packages: ["jose", "node:", "ipaddr.js"] },
  publish: {
    rooms: ["http", "provider", "rotation", "store"],
    packages: ["node:", "@aws-sdk/client-s3"],
  },
  "doctor/node": { rooms: ["doctor", "node"], packages: ["jose", "node:", "ipaddr.js"] },
  report: { rooms: ["rotation", "store"], packages: ["node:"] },
  status: { rooms: ["report", "rotation", "store"], packages: [] },
  page: { rooms: ["report", "rotation", "status"], packages: [] },
  server: {
    rooms: [
      "jwk",
      "crypto",
      "keyset",
      "http",
      "signer",
      "token",
      "provider",
      "store",
      "rotation",
      "manager",
      "pkcs11",
      "node",
      "sign-server",
      "status",
      "page",
      "publish",
    ],
    packages: ["jose", "node:", "prom-client"],
  },
  cli: {
    rooms: [
      "jwk",
      "crypto",
      "keyset",
      "signer",
      "token",
      "relying-party",
      "store",
      "rotation",
      "manager",
      "node",
      "doctor",
      "doctor/node",
      "publish",
      "report",
      "server",
    ],
    packages: ["jose", "node:", "commander"],
  },
};

/** The file that knows every adapter of signers; only these rooms may import it. */
const compositions: ReadonlySet<string> = new Set(["server", "cli"]);

const packages = [
  ...Object.keys({ ...packageJson.dependencies, ...packageJson.peerDependencies }),
  ...Object.keys(packageJson.imports),
];

const without = (all: readonly string[], allowed: readonly string[]): string[] =>
  all.filter((name) => !allowed.includes(name)).map((name) => name.replaceAll(".", "\\."));

/** Matches what files of a room may not import: all that there is, but what the list allows. */
export function forbiddenImports(name: string, room: Room): string {
  const up = "\\.\\./".repeat(name.split("/").length);
  const others = without(Object.keys(rooms), [name, ...room.rooms]);
  // Of stores only the port, but where all is put together.
  const stores = compositions.has(name) || name === "store" ? [] : ["store/(?:index|memory|sqlite|sqlite-.*)\\.ts"];
  const files = compositions.has(name) ? ["index"] : ["index", "open-signer"];
  // Its implementation is chosen by the runtime.
  const crypto = [name, ...room.rooms].includes("crypto") ? ["#crypto"] : [];
  return [
    `^${up}(?:${[...others.map((other) => `${other}/[\\w-]+\\.ts`), ...stores, ...files.map((file) => `${file}\\.ts`)].join("|")})$`,
    // Or a part of one, such as jose/key/import.
    `^(?:${without(packages, [...room.packages, ...crypto]).join("|")})(?:/.*)?$`,
    ...(room.packages.includes("node:") ? [] : ["^node:"]),
  ].join("|");
}

/** Matches what files on which every room builds may not import: a room, or Node. */
export const forbiddenToBase = "^\\./[\\w-]+/|^\\./(?:index|open-signer)\\.ts$|^node:|^#";
