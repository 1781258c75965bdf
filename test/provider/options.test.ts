import assert from "node:assert/strict";
import { describe, test } from "node:test";
import {
  type ErrorCode,
  type ProviderOptions,
  createProvider,
  localSigner,
  withEncryptionKeyset,
  withEndpoints,
  withJWKSRotationActive,
  withKeyset,
} from "../../src/index.ts";
import { ecKey, withoutPrivate } from "../support/keys.ts";
import { refusal } from "../support/refusal.ts";

const issuer = "https://op.example";
const keyset = [{ kid: "a", signer: await localSigner(ecKey("a")) }];
const otherKeyset = [{ kid: "b", signer: await localSigner(ecKey("b")) }];
const encryptionKeyset = [{ kid: "e", publicKey: withoutPrivate(ecKey("e")) }];
const base: ProviderOptions = { issuer, keyset };

/** What an outsider sees of the options. */
async function seen(options: readonly (ProviderOptions | null | undefined)[]) {
  const provider = await createProvider(...options);
  const response = await provider.fetch(new Request(provider.jwksUri));
  const { keys } = (await response.json()) as { keys: { kid: string }[] };
  return {
    jwksUri: provider.jwksUri,
    kids: keys.map(({ kid }) => kid).join(" "),
    rotation: response.headers.get("cache-control")?.includes("max-age=300,"),
    cors: response.headers.has("access-control-allow-origin"),
  };
}

const defaults = { jwksUri: `${issuer}/jwks`, kids: "a", rotation: false, cors: true };
const throwing = (): boolean => assert.fail("an option that lost is still called");

const merges: [
  name: string,
  options: readonly (ProviderOptions | null | undefined)[],
  differs: Partial<typeof defaults>,
][] = [
  ["defaults", [base], {}],
  ["one object or many", [{ issuer }, { keyset }], {}],
  ["null and undefined in place of options", [null, base, undefined], {}],
  ["null for each option", [base, allNull(null)], {}],
  ["undefined for each option", [base, allNull(undefined)], {}],
  ["null before a value", [allNull(null), base], {}],
  ["withKeyset", [{ issuer }, withKeyset(keyset)], {}],
  ["withKeyset: the last one wins", [base, withKeyset(otherKeyset)], { kids: "b" }],
  ["withKeyset: a plain object after it wins", [withKeyset(otherKeyset), base], {}],
  ["withKeyset(null) is not given", [base, withKeyset(null)], {}],
  ["withEncryptionKeyset", [base, withEncryptionKeyset(encryptionKeyset)], { kids: "a e" }],
  [
    "withEncryptionKeyset: the last one wins",
    [base, withEncryptionKeyset(encryptionKeyset), withEncryptionKeyset([])],
    {},
  ],
  [
    "withEncryptionKeyset(null) is not given",
    [base, withEncryptionKeyset(encryptionKeyset), withEncryptionKeyset(null)],
    { kids: "a e" },
  ],
  ["withEndpoints", [base, withEndpoints({ jwks: "/k" })], { jwksUri: `${issuer}/k` }],
  [
    "withEndpoints: the last one wins",
    [withEndpoints({ jwks: "/k" }), base, withEndpoints({ jwks: "/l" })],
    { jwksUri: `${issuer}/l` },
  ],
  ["withEndpoints: the last one wins whole", [base, withEndpoints({ jwks: "/k" }), withEndpoints({})], {}],
  [
    "withEndpoints(null) is not given",
    [base, withEndpoints({ jwks: "/k" }), withEndpoints(null)],
    { jwksUri: `${issuer}/k` },
  ],
  ["a path of null is the default", [base, withEndpoints({ jwks: null })], {}],
  ["withJWKSRotationActive", [base, withJWKSRotationActive(() => true)], { rotation: true }],
  [
    "withJWKSRotationActive: the last one wins",
    [base, withJWKSRotationActive(throwing), withJWKSRotationActive(() => false)],
    {},
  ],
  ["withJWKSRotationActive(null)", [base, withJWKSRotationActive(null)], {}],
  ["withJWKSRotationActive(null) wins", [base, withJWKSRotationActive(throwing), withJWKSRotationActive(null)], {}],
  [
    "withJWKSRotationActive(undefined) wins",
    [base, withJWKSRotationActive(throwing), withJWKSRotationActive(undefined)],
    {},
  ],
  [
    "withJWKSRotationActive: a predicate after null wins",
    [base, withJWKSRotationActive(null), withJWKSRotationActive(() => true)],
    { rotation: true },
  ],
  [
    "a predicate of null in a plain object is not given",
    [base, withJWKSRotationActive(() => true), allNull(null), allNull(undefined)],
    { rotation: true },
  ],
  [
    "mountPrefix: the last one wins",
    [{ ...base, mountPrefix: "/x" }, { mountPrefix: "/y" }],
    { jwksUri: `${issuer}/y/jwks` },
  ],
  ["issuer: the last one wins", [base, { issuer: `${issuer}/t` }], { jwksUri: `${issuer}/t/jwks` }],
  ["cors: the last one wins", [{ ...base, cors: true }, { cors: false }], { cors: false }],
];

function allNull(nil: null | undefined): ProviderOptions {
  const names: readonly (keyof ProviderOptions)[] = [
    "issuer",
    "mountPrefix",
    "endpoints",
    "keyset",
    "encryptionKeyset",
    "jwksRotationActive",
    "metadata",
    "cors",
    "onWarning",
    "signerLimits",
    "clock",
  ];
  return Object.fromEntries(names.map((name) => [name, nil]));
}

describe("contract, section 4, rotation cache mode, 4 and 5: nil is the long cache, the last one wins; options merge left to right", () => {
  for (const [name, options, differs] of merges)
    test(name, async () => assert.deepEqual(await seen(options), { ...defaults, ...differs }));
});

const refused: [code: ErrorCode, says: RegExp, ...options: unknown[]][] = [
  ["ERR_OPTION_UNKNOWN", /"isuer".*issuer/s, { isuer: issuer }],
  ["ERR_OPTION_UNKNOWN", /"JWKSRotationActive"/, { ...base, JWKSRotationActive: () => true }],
  ["ERR_OPTION_UNKNOWN", /"keySet"/, base, { keySet: undefined }],
  ["ERR_OPTION_UNKNOWN", /"constructor"/, { ...base, constructor: {} }],
  ["ERR_OPTION_UNKNOWN", /endpoint "JWKS"/, base, { endpoints: { JWKS: "/k" } }],
  ["ERR_OPTION_UNKNOWN", /endpoint "authorize"/, base, { endpoints: { jwks: "/k", authorize: "/a" } }],
  ["ERR_OPTION_INVALID", /"issuer".*string.*object/, { issuer: new URL(issuer) }],
  ["ERR_OPTION_INVALID", /"mountPrefix"/, { ...base, mountPrefix: 5 }],
  ["ERR_OPTION_INVALID", /"endpoints"/, { ...base, endpoints: "/jwks" }],
  ["ERR_OPTION_INVALID", /"endpoints"/, { ...base, endpoints: ["/jwks"] }],
  ["ERR_OPTION_INVALID", /endpoint "jwks"/, { ...base, endpoints: { jwks: 5 } }],
  ["ERR_OPTION_INVALID", /"keyset"/, { issuer, keyset: { keys: [] } }],
  ["ERR_OPTION_INVALID", /"encryptionKeyset"/, { ...base, encryptionKeyset: encryptionKeyset[0] }],
  ["ERR_OPTION_INVALID", /"jwksRotationActive"/, { ...base, jwksRotationActive: true }],
  ["ERR_OPTION_INVALID", /"metadata"/, { ...base, metadata: [] }],
  ["ERR_OPTION_INVALID", /"metadata".*JSON/, { ...base, metadata: { size: 1n } }],
  ["ERR_OPTION_INVALID", /"metadata".*toJSON/, { ...base, metadata: { toJSON: () => ({}) } }],
  ["ERR_OPTION_INVALID", /"metadata".*toJSON/, { ...base, metadata: new Date(0) }],
  ["ERR_OPTION_INVALID", /"cors"/, { ...base, cors: "true" }],
  ["ERR_OPTION_INVALID", /"onWarning"/, { ...base, onWarning: {} }],
  ["ERR_OPTION_INVALID", /"signerLimits"/, { ...base, signerLimits: 5 }],
  [
    "ERR_OPTION_UNKNOWN",
    /no signer limit "maxQueue"; did you mean "maxQueued"\?$/,
    { ...base, signerLimits: { maxQueue: 0 } },
  ],
  ["ERR_OPTION_UNKNOWN", /"limit"; there is: .*maxQueued/, { ...base, signerLimits: { limit: 0 } }],
  ["ERR_OPTION_INVALID", /"clock"/, { ...base, clock: Date.now }],
  ["ERR_OPTION_INVALID", /clock/, { ...base, clock: {} }],
  ["ERR_OPTION_INVALID", /"issuer"/, base, { issuer: false }],
  ["ERR_OPTION_INVALID", /option/, base, withKeyset],
  ["ERR_OPTION_INVALID", /option/, base, 5],
  ["ERR_ISSUER_INVALID", /missing/, { keyset }],
  ["ERR_KEYSET_EMPTY", /keyset/, { issuer }],
  ["ERR_KEYSET_EMPTY", /keyset/, base, { keyset: [] }],
];

describe("wrong options are refused", () => {
  for (const [code, says, ...options] of refused) {
    test(`${code}: ${says.source}`, async () => {
      const error = await refusal(() => createProvider(...(options as ProviderOptions[])), code);
      assert.match(error.message, says);
    });
  }
});
