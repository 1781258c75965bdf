import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { generatePrimeSync } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { promisify } from "node:util";

const maxMegabytes = 100;
const maxSeconds = 10;

/** Moduli that no check of one key factors. */
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

const nested = `${"[".repeat(100_000)}${"]".repeat(100_000)}`;
const proto = `{"__proto__":{"d":"x"},"keys":[{"__proto__":{"kty":"RSA"},"constructor":1,"kid":"__proto__","kty":"__proto__","x5c":["__proto__"]}]}`;

const rows: readonly (readonly [about: string, text: () => string, code: string])[] = [
  ["1,000 RSA keys of 2048 bits", () => JSON.stringify({ keys: rsaKeys(1000, 2048) }), "JWKS_KEYS_MANY"],
  ["680 RSA keys of 8192 bits", () => JSON.stringify({ keys: rsaKeys(680, 8064) }), "JWKS_KEYS_MANY"],
  ["100,000 nested arrays", () => nested, "JWKS_KEYS_MISSING"],
  ["100,000 nested arrays in keys, twice", () => `{"keys":[${nested},{"kty":${nested}}]}`, "JWKS_MEMBER_NOT_OBJECT"],
  ["200,000 entries", () => `{"keys":[${Array.from({ length: 200_000 }, () => "{}").join(",")}]}`, "JWKS_KTY_MISSING"],
  ["__proto__ wherever there is a name", () => proto, "JWKS_KTY_UNKNOWN"],
  [
    "a modulus of 7 million bits",
    () => `{"keys":[{"kty":"RSA","e":"AQAB","n":"${"_".repeat(950_000)}"}]}`,
    "JWKS_MEMBER_TOO_LONG",
  ],
];

describe("a hostile document is judged within 10 s of processor time and 100 MB", () => {
  for (const [about, text, code] of rows) {
    test(about, async (t) => {
      const folder = await mkdtemp(join(tmpdir(), "jwksd-hostile-"));
      t.after(() => rm(folder, { recursive: true }));
      const file = join(folder, "keys.json");
      await writeFile(file, text());
      const script = join(import.meta.dirname, "measured.ts");
      const { stdout } = await promisify(execFile)(process.execPath, [script, file], { timeout: 60_000 });
      const { found, megabytes, seconds } = JSON.parse(stdout) as {
        found: string[];
        megabytes: number;
        seconds: number;
      };
      t.diagnostic(`${Math.round(megabytes)} MB, ${seconds.toFixed(1)} s`);
      assert.ok(found.includes(code), found.join(", "));
      assert.ok(megabytes < maxMegabytes, `${megabytes} MB`);
      assert.ok(seconds < maxSeconds, `${seconds} s`);
    });
  }
});
