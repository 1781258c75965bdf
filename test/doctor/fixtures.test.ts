import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { generatePrimeSync } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import { promisify } from "node:util";
import fc from "fast-check";
import { type Code, codes, examine } from "../../src/doctor/index.ts";
import {
  bitLength,
  gcd,
  hasCloseFactors,
  hasRocaFingerprint,
  sharedFactors,
  smallFactor,
  squareRoot,
} from "../../src/doctor/number-theory.ts";
import type { HttpExchange, Observations, SetFetch } from "../../src/doctor/observations.ts";
import { describeRotation } from "../../src/doctor/rotation-practice.ts";
import { quoted, quotedName } from "../../src/doctor/value-text.ts";
import { breaksOf } from "../../src/doctor/verifiers/failing-verifiers.ts";
import { keyMaterial, rsaKey, withoutPrivate } from "../support/keys.ts";
import { temporaryFolder } from "../support/service.ts";
import { isSoak, soak } from "../support/soak.ts";
import { authorityCertificate, certificate } from "./certificates.ts";
import { fixtures } from "./fixtures.ts";
import { at, observed, published, sound, bytes, response, asSet, issuer } from "./observed.ts";
import { page } from "./page.ts";
import { observedShape, shapes } from "./shapes.ts";

const found = async (...args: Parameters<typeof examine>): Promise<string[]> =>
  (await examine(...args)).map(({ code }) => code);

describe("examine reports each fault only under its own code, with links to the rule and to the paragraph about the code", () => {
  test("there is a fixture for every code", () => {
    assert.ok(fixtures.length >= 60, `${fixtures.length}`);
    const covered = new Set<string>(fixtures.map(({ code }) => code));
    assert.deepEqual(
      Object.keys(codes).filter((code) => !covered.has(code)),
      [],
    );
  });

  for (const { code, about = "", observations } of fixtures) {
    test(`${code} ${about}`, async () => {
      const [finding, ...others] = await examine(observations);
      assert.deepEqual([finding?.code, others], [code, []]);
      assert.match(finding?.ruleUrl ?? "", /^https:/, `the rule has no URL: ${finding?.rule}`);
      assert.ok(finding?.link.endsWith(`#${code.toLowerCase()}`));
    });
  }

  test("finds nothing if nothing is wrong", async () => {
    assert.deepEqual(await found(observed()), []);
    assert.deepEqual(await found(observed({ keys: [sound] })), []);
    const rsa = published("rsa", rsaKey(), "RS256");
    const document = {
      id_token_signing_alg_values_supported: ["RS256", "ES256"],
      authorization_endpoint: "https://login.example.com/auth",
      token_endpoint: "https://login.example.com/token",
      response_types_supported: ["code"],
      subject_types_supported: ["public"],
    };
    assert.deepEqual(await found(observed({ keys: [sound, rsa], document })), []);
  });

  test("finds nothing if nothing was observed", async () => {
    assert.deepEqual(await found({ at }), []);
  });
});

describe("a finding", () => {
  test("identifies a leaked key by its kid and thumbprint and names its members without showing their values", async () => {
    const leaked = fixtures.filter(({ code, signs }) => code === ("JWKS_PRIVATE_MEMBERS" satisfies Code) && signs);
    for (const { observations, signs } of leaked) {
      const [finding] = await examine(observations);
      const text = JSON.stringify(finding);
      assert.match(text, /kid \\"odd\\"\), thumbprint [\w-]{43}, has d/);
      for (const secret of keyMaterial(signs?.key)) assert.ok(!text.includes(secret));
    }
  });

  test("lists ten places and gives the total number of places", async () => {
    const keys = Array.from({ length: 50 }, (_, index) => ({ ...published(`kid ${index}`), alg: undefined }));
    const [finding] = await examine(observed({ keys }));
    assert.deepEqual([finding?.code, finding?.seen.length, finding?.count], ["JWKS_ALG_MISSING", 10, 50]);
  });
});

test("docs/doctor.md has a paragraph about every code (node test/doctor/page.ts writes it)", () => {
  const { is, shouldBe } = page();
  assert.equal(is, shouldBe);
  assert.equal(new Set(is.match(/^### \w+$/gm)).size, is.match(/^### \w+$/gm)?.length);
});

const hour = 3_600_000;
const setOf = (kids: readonly string[], control?: string): HttpExchange =>
  response(
    bytes({ keys: kids.map((kid) => published(kid)) }),
    control === undefined ? {} : { "cache-control": control },
  );
const fetched = (hours: number, ...kids: readonly string[]): SetFetch => ({ at: at + hours * hour, set: setOf(kids) });
const oneFetch = (kids: readonly string[], control?: string): Observations => ({ at, set: setOf(kids, control) });

const rows: readonly (readonly [about: string, observations: Observations, says: RegExp])[] = [
  ["one key", oneFetch(["a"]), /^Only one signing key is published, so the next key has not been announced\./m],
  ["two keys", oneFetch(["a", "b"]), /^2 signing keys are published: one is used for signing/m],
  ["a lifetime of weeks", oneFetch(["a"], "max-age=1209600, immutable"), /^Caches may keep the set for 14 d /m],
  ["a lifetime of hours", oneFetch(["a"]), /^Caches may keep the set for 2 h /m],
  ["no-store", oneFetch(["a"], "no-store"), /^Caches must not keep the set/m],
  ["no lifetime", oneFetch(["a"], "public"), /^No lifetime is stated/m],
  [
    "servers that disagree",
    {
      ...observed({ probes: { again: setOf(["elsewhere"]) } }),
      tokens: [{ at, kid: "elsewhere", expiresAt: at + hour }],
    },
    /^5 simultaneous responses had 2 different sets of keys: servers disagree\.\nCaches may .*\.$/,
  ],
  ["servers that agree", observed(), /^5 simultaneous responses had the same keys\./m],
  [
    "a watch",
    { ...oneFetch(["a"]), laterFetches: [fetched(1, "a", "b"), fetched(6, "b")] },
    /^In 6 h, the issuer added one key and withdrew one key\./m,
  ],
  [
    "a key that is announced, and one that outlives its tokens",
    {
      ...oneFetch(["a"]),
      laterFetches: [fetched(1, "a", "b"), fetched(9, "b")],
      tokens: [
        { at: at + 2 * hour, kid: "a", issuedAt: at + 2 * hour, expiresAt: at + 3 * hour },
        { at: at + 5 * hour, kid: "b", issuedAt: at + 4 * hour, expiresAt: at + 5 * hour },
      ],
    },
    /^kid "a" was withdrawn after its tokens had expired\.\nkid "b" was first used for signing 3 h after it was published\.$/m,
  ],
  [
    "a key that is withdrawn early, and one that signs early",
    {
      ...oneFetch(["a"]),
      laterFetches: [fetched(1, "a", "b"), fetched(2, "b")],
      tokens: [
        { at, kid: "a", issuedAt: at, expiresAt: at + 4 * hour },
        { at, kid: "b", issuedAt: at, expiresAt: at + 4 * hour },
      ],
    },
    /^kid "a" was withdrawn while a token was still valid for another 2 h\.\nkid "b" was first used for signing before it was published\.$/m,
  ],
  [
    "a key that is not published",
    { ...oneFetch(["a"]), tokens: [{ at, kid: "z" }] },
    /^kid "z" is used for signing but is not published/m,
  ],
];

describe("describeRotation returns", () => {
  for (const [about, observations, says] of rows) {
    test(about, async () => assert.match((await describeRotation(observations)).join("\n"), says));
  }

  test("nothing for a set from a file or for a response without a set", async () => {
    assert.deepEqual(await describeRotation({ at, set: { body: bytes({ keys: [published("a")] }) } }), []);
    assert.deepEqual(await describeRotation({ at, set: { url: "https://a.example", status: 500, headers: [] } }), []);
  });
});

const natural = fc.bigInt({ min: 0n, max: 2n ** 300n });
const prime = (bits: number): bigint => generatePrimeSync(bits, { bigint: true });

describe("integers", () => {
  test("property: the square root of a number is the largest integer whose square is not larger than the number", () => {
    fc.assert(
      fc.property(natural, (value) => {
        const root = squareRoot(value);
        assert.ok(root * root <= value && (root + 1n) ** 2n > value);
      }),
    );
  });

  test("property: the bit length is the length of the binary form", () => {
    fc.assert(
      fc.property(natural, (value) => assert.equal(bitLength(value), value === 0n ? 0 : value.toString(2).length)),
    );
  });

  test("property: each number's shared factor is its greatest common divisor with the product of the others", () => {
    fc.assert(
      fc.property(fc.uniqueArray(fc.bigInt({ min: 2n, max: 10_000n }), { maxLength: 9 }), (values) => {
        const expected = values.map((value, index) =>
          gcd(
            value,
            values.reduce((product, other, place) => (place === index ? product : product * other), 1n),
          ),
        );
        assert.deepEqual(sharedFactors(values), expected);
      }),
    );
  });

  test("property: the smallest factor below 65,536 is found, and no other", () => {
    fc.assert(
      fc.property(fc.integer({ min: 2, max: 60_000 }), (value) => {
        const least = Array.from({ length: value - 1 }, (_, index) => index + 2).find((factor) => value % factor === 0);
        assert.equal(smallFactor(BigInt(value) * largePrime), least);
      }),
      { numRuns: 20 },
    );
    assert.equal(smallFactor(largePrime), undefined);
    assert.equal(smallFactor(65_521n * largePrime), 65_521);
  });

  test("factors are found within the given number of rounds only if they are close, and no fingerprint is a false positive", () => {
    const p = prime(512);
    const near = p + 2n ** 200n;
    assert.equal(hasCloseFactors(p * p, 100), true);
    assert.equal(hasCloseFactors(p * near, 100), true);
    assert.equal(hasCloseFactors(p * prime(512), 100), false);
    assert.equal(hasRocaFingerprint(p * near), false);
    assert.equal(hasRocaFingerprint(65_537n ** 5n), true);
  });
});

const largePrime = 2n ** 521n - 1n;

describe("the sets of well-known issuers", () => {
  test("have at least 18 shapes", () => assert.ok(shapes.length >= 18));

  for (const shape of shapes) {
    test(`${shape.name}: every finding more severe than advice is justified`, async () => {
      const found = (await examine(observedShape(shape))).filter(({ severity }) => severity !== "advice");
      assert.deepEqual(
        found.map(({ code }) => code),
        shape.found ?? [],
        JSON.stringify(found.map(({ seen }) => seen)),
      );
    });
  }
});

const day = 24 * 3600 * 1000;

const withExponent = (e: string): Promise<string[]> => {
  const rsa = { ...withoutPrivate(rsaKey()), e, kid: "rsa", alg: "RS256", use: "sig" };
  const document = { id_token_signing_alg_values_supported: ["ES256", "RS256"] };
  return found(observed({ keys: [sound, rsa], document }));
};

const aged = (days: number): Promise<string[]> => {
  const made = new Date(at - days * day).toISOString().slice(0, 10);
  return found(observed({ keys: [published(`key-${made}`)] }));
};

const rsaSet = (more: object, rest: Partial<Observations> = {}): Promise<string[]> => {
  const rsa = { ...withoutPrivate(rsaKey()), kid: "rsa", alg: "RS256", use: "sig", ...more };
  const document = { id_token_signing_alg_values_supported: ["ES256", "RS256"] };
  return found(observed({ keys: [sound, rsa], document, rest }));
};
const hexOf = (text: unknown): string => Buffer.from(text as string, "base64url").toString("hex");

describe("examine", () => {
  test("reports only that a modulus is too short, even if it also has the ROCA fingerprint", async () => {
    assert.deepEqual(await rsaSet({ n: "AQ" }), ["JWKS_RSA_SHORT"]);
    assert.deepEqual(await rsaSet({ n: "Iw" }), ["JWKS_RSA_SHORT"]);
  });

  test("requires a kid on a SPIFFE bundle's token keys, but not on its certificate authorities", async () => {
    const { kid: _, ...nameless } = published("svid");
    assert.deepEqual(await found(observed({ keys: [sound, { ...nameless, use: "x509-svid" }] })), []);
    assert.deepEqual(await found(asSet(observed({ keys: [{ ...nameless, use: "jwt-svid" }] }))), ["JWKS_KID_MISSING"]);
    assert.deepEqual(await found(observed({ keys: [{ ...nameless, use: "x509-svid" }] })), []);
  });

  test("distinguishes a hex digest (plain or encoded a second time) from the digest of a different certificate", async () => {
    const digests = certificate(rsaKey());
    const hex = hexOf(digests.x5t);
    assert.deepEqual(await rsaSet({ ...digests, x5t: hex }), ["JWKS_X5T_HEX"]);
    assert.deepEqual(await rsaSet({ ...digests, x5t: Buffer.from(hex).toString("base64url") }), ["JWKS_X5T_HEX"]);
    assert.deepEqual(await rsaSet({ ...digests, x5t: digests["x5t#S256"] }), ["JWKS_X5T_MISMATCH"]);
  });

  test("accepts a single certificate, and a chain in which each certificate is signed by the next", async () => {
    const { x5c } = certificate(rsaKey());
    assert.deepEqual(await rsaSet({ x5c: [...x5c, authorityCertificate()] }), []);
    assert.deepEqual(await rsaSet({ x5c }), []);
  });

  test("requires an authorization server to have the members of RFC 8414 section 2, but not OpenID Connect's additional members", async () => {
    const openId = ["subject_types_supported", "id_token_signing_alg_values_supported"];
    const login = {
      authorization_endpoint: `${issuer}/a`,
      token_endpoint: `${issuer}/t`,
      response_types_supported: ["code"],
    };
    const at = async (name: string, more: object): Promise<unknown> => {
      const document = { ...login, id_token_signing_alg_values_supported: undefined, ...more };
      const found = await examine(observed({ document, discovery: { url: `${issuer}/.well-known/${name}` } }));
      return found.find(({ code }) => code === "DISCOVERY_MEMBERS_MISSING")?.seen[0];
    };
    assert.equal(await at("openid-configuration", {}), openId.join(", "));
    assert.equal(await at("oauth-authorization-server", {}), undefined);
    assert.equal(
      await at("oauth-authorization-server", { response_types_supported: undefined }),
      "response_types_supported",
    );
    const direct = { authorization_endpoint: undefined, grant_types_supported: ["client_credentials"] };
    assert.equal(await at("oauth-authorization-server", direct), undefined);
    assert.match(String(await at("openid-configuration", direct)), /^authorization_endpoint, /);
  });

  test("accepts a private key parameter without a value, as written by some serializers", async () => {
    for (const empty of [{ d: null }, { d: "" }, { d: null, p: "", oth: [], k: undefined }])
      assert.deepEqual(await found(observed({ keys: [{ ...sound, ...empty }] })), []);
    for (const full of [{ d: 7 }, { oth: [{}] }, { k: "secret" }])
      assert.deepEqual(await found(observed({ keys: [{ ...sound, ...full }] })), ["JWKS_PRIVATE_MEMBERS"]);
  });

  test("reports a set that has only encryption keys", async () => {
    const key = { ...withoutPrivate(rsaKey()), kid: "enc", use: "enc", alg: "RSA-OAEP-256" };
    assert.deepEqual(await found(observed({ keys: [key] })), ["JWKS_NO_SIGNING_KEY", "JWKS_ENCRYPTION_KEY"]);
  });

  test("finds a modulus with a prime on the blocklist, and a modulus on the blocklist", async () => {
    const { p, n } = rsaKey();
    assert.deepEqual(await rsaSet({}, { blocklist: new Set([hexOf(p)]) }), ["JWKS_RSA_SHARED_PRIME"]);
    assert.deepEqual(await rsaSet({}, { blocklist: new Set([hexOf(n)]) }), ["JWKS_KEY_KNOWN"]);
    assert.deepEqual(await rsaSet({}, { blocklist: new Set(["f".repeat(64)]) }), []);
  });

  test("does not rate a finding as broken if none of the verifiers that were run fails on it", () => {
    for (const code of ["HTTP_MEDIA_TYPE", "DISCOVERY_MEDIA_TYPE", "JWKS_RSA_LEADING_ZERO"] as const) {
      assert.notEqual(codes[code].severity, "broken");
      assert.ok(breaksOf(code).every(({ source }) => source !== undefined));
    }
  });
});

const cached = (age: string, control?: string): Promise<string[]> =>
  found(observed({ headers: { age, "cache-control": control } }));

const withMember = async (member: object): Promise<string[]> =>
  (await examine(observed({ keys: [sound, { ...published("odd"), ...member }] }))).flatMap(({ seen }) => seen);

const slow = (waitMs: number): Promise<string[]> => found(observed({ set: { waitMs } }));

describe("examine uses exact limits", () => {
  test("an RSA exponent may be 32 bits long, but not 33", async () => {
    assert.deepEqual(await withExponent("_____w"), []);
    assert.deepEqual(await withExponent("AQAAAAE"), ["JWKS_RSA_EXPONENT_LARGE"]);
  });

  test("quotes up to 60 characters of a kid and 39 of a name", () => {
    assert.equal(quoted("x".repeat(60)), `"${"x".repeat(60)}"`);
    assert.equal(quoted("x".repeat(61)), `"${"x".repeat(60)}…"`);
    assert.equal(quotedName("x".repeat(39)), `"${"x".repeat(39)}"`);
    assert.equal(quotedName("x".repeat(40)), "(a string of 40 characters)");
  });

  test("the responses over IPv4 and IPv6 may list the same keys in different orders", async () => {
    const [a, b] = [published("a"), published("b")];
    const over = (ipv4: unknown, ipv6: unknown): Promise<string[]> => {
      const probes: Record<string, HttpExchange> = { ipv4: response(bytes(ipv4)), ipv6: response(bytes(ipv6)) };
      return found(observed({ keys: [a, b], probes }));
    };
    assert.deepEqual(await over({ keys: [a, b] }, { keys: [b, a] }), []);
    assert.deepEqual(await over({ keys: [a, b] }, { keys: [b] }), ["HTTP_ADDRESSES_DIFFER"]);
    assert.deepEqual(await over("no set", "no set either"), ["HTTP_ADDRESSES_DIFFER"]);
  });

  test("a median of 250 ms is not slow, and one of 500 ms is not a risk", async () => {
    assert.deepEqual(await slow(250), []);
    assert.deepEqual(await slow(251), ["HTTP_SLOW_250"]);
    assert.deepEqual(await slow(500), ["HTTP_SLOW_250"]);
    assert.deepEqual(await slow(501), ["HTTP_SLOW_500"]);
  });

  test("a response is outdated if its Age exceeds its lifetime (or one day, if it has no lifetime)", async () => {
    assert.deepEqual(await cached("7200", "max-age=3600, stale-while-revalidate=3600"), []);
    assert.deepEqual(await cached("7201", "max-age=3600, stale-while-revalidate=3600"), ["HTTP_AGE"]);
    assert.deepEqual(await cached("90000", "max-age=604800"), []);
    assert.deepEqual(await cached("86400"), ["HTTP_NO_LIFETIME"]);
    assert.deepEqual(await cached("90000"), ["HTTP_AGE", "HTTP_NO_LIFETIME"]);
    assert.deepEqual(await cached("90000", "no-cache"), ["HTTP_AGE", "HTTP_NO_LIFETIME"]);
    assert.deepEqual(await cached("-1, x"), ["HTTP_NO_LIFETIME"]);
  });

  test("blames jwks_uri for a missing set only if a discovery document names the URL", async () => {
    const missing = observed({ set: { status: 404 } });
    assert.deepEqual(await found(missing), ["DISCOVERY_JWKS_URI_NOT_FOUND"]);
    assert.deepEqual(await found(observed({ set: { status: 410 } })), ["DISCOVERY_JWKS_URI_NOT_FOUND"]);
    assert.deepEqual(await found(asSet(missing)), ["HTTP_STATUS"]);
  });

  test("a key is valid from its nbf until its exp, both in seconds", async () => {
    const now = at / 1000;
    assert.deepEqual(await withMember({ exp: now + 1, nbf: now, iat: now }), []);
    assert.deepEqual(await withMember({ exp: String(now), nbf: null, revoked: null }), []);
    assert.deepEqual(await withMember({ exp: now }), ['key 2 (kid "odd") expired on 2026-11-20 12:00:00 UTC']);
    assert.deepEqual(await withMember({ exp: -1e300, nbf: 1e300 }), [
      'key 2 (kid "odd") expired on -1e+300, is valid from 1e+300',
    ]);
  });

  test("a signing key whose kid is a date counts as old after a year", async () => {
    assert.deepEqual(await aged(364), []);
    assert.deepEqual(await aged(367), ["JWKS_ONE_OLD_KEY"]);
  });
});

const maxMegabytes = 128;
const maxSeconds = 10;

/** Returns moduli that no check of a single key factors. */
function rsaKeys(count: number, bits: number): object[] {
  const primes = Array.from({ length: 120 }, () => generatePrimeSync(64, { bigint: true }));
  return Array.from({ length: count }, (_, index) => {
    let n = 1n;
    for (let factor = 0; factor <= bits / 64; factor += 1)
      n *= primes[(index * 7 + factor * (index % 11) + factor) % 120] ?? 1n;
    const hex = n.toString(16);
    const text = Buffer.from(hex.padStart(hex.length + (hex.length % 2), "0"), "hex").toString("base64url");
    return { kty: "RSA", n: text, e: "AQAB", kid: `k${index}`, alg: "RS256", use: "sig" };
  });
}

const deep = soak(100_000);
const nested = `${"[".repeat(deep)}${"]".repeat(deep)}`;
const [short, long, entries, digits] = [soak(1000, 8), soak(680, 8), soak(200_000), soak(950_000)];
const proto = `{"__proto__":{"d":"x"},"keys":[{"__proto__":{"kty":"RSA"},"constructor":1,"kid":"__proto__","kty":"__proto__","x5c":["__proto__"]}]}`;

const hostileRows: readonly (readonly [about: string, text: () => string, code: string])[] = [
  [`${short} RSA keys of 2048 bits`, () => JSON.stringify({ keys: rsaKeys(short, 2048) }), "JWKS_RSA_SHARED_PRIME"],
  [`${long} RSA keys of 8192 bits`, () => JSON.stringify({ keys: rsaKeys(long, 8064) }), "JWKS_RSA_SHARED_PRIME"],
  [`${deep} nested arrays`, () => nested, "JWKS_KEYS_MISSING"],
  [`${deep} nested arrays in keys, twice`, () => `{"keys":[${nested},{"kty":${nested}}]}`, "JWKS_MEMBER_NOT_OBJECT"],
  [
    `${entries} entries`,
    () => `{"keys":[${Array.from({ length: entries }, () => "{}").join(",")}]}`,
    "JWKS_KTY_MISSING",
  ],
  ["__proto__ as every name", () => proto, "JWKS_KTY_UNKNOWN"],
  [
    `a modulus of ${digits * 6} bits`,
    () => `{"keys":[{"kty":"RSA","e":"AQAB","n":"${"_".repeat(digits)}"}]}`,
    "JWKS_MEMBER_TOO_LONG",
  ],
];

test("examines each hostile document within 10 s of CPU time and 128 MB of memory", async (t) => {
  const folder = await temporaryFolder(t);
  const files = await Promise.all(
    hostileRows.map(async ([, text], index) => {
      const file = join(folder, `${index}.json`);
      await writeFile(file, text());
      return file;
    }),
  );
  const script = join(import.meta.dirname, "measured.ts");
  // A process does not return its memory, so the largest document has its own.
  const groups = isSoak ? [files.slice(0, 4), files.slice(4, 5), files.slice(5)] : [files];
  const outputs = await Promise.all(groups.map((group) => promisify(execFile)(process.execPath, [script, ...group])));
  const stdout = outputs.map((output) => output.stdout).join("");
  for (const [index, line] of stdout.trim().split("\n").entries()) {
    const [about = "", , code = ""] = hostileRows[index] ?? [];
    const { found, megabytes, seconds } = JSON.parse(line) as {
      found: string[];
      megabytes: number;
      seconds: number;
    };
    t.diagnostic(`${about}: ${Math.round(megabytes)} MB, ${seconds.toFixed(1)} s`);
    assert.ok(found.includes(code), `${about}: ${found.join(", ")}`);
    assert.ok(megabytes < maxMegabytes && seconds < maxSeconds, `${about}: ${megabytes} MB, ${seconds} s`);
  }
  assert.equal(stdout.trim().split("\n").length, hostileRows.length);
});
