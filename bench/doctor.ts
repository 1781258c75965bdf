import { generatePrimeSync } from "node:crypto";
import { examine } from "../src/doctor/index.ts";
import { type Section, table } from "./report.ts";

const keys = 1000;
const limitSeconds = 10;

/** Measures the checks of RSA keys, for a set with the maximum number of checked keys. */
export async function doctor(): Promise<Section> {
  const sets: readonly (readonly [name: string, moduli: readonly bigint[]])[] = [
    ["2048 bits, nothing wrong", distinct(2048)],
    ["4096 bits, nothing wrong", distinct(4096)],
    ["2048 bits, each shares both primes with others", sharing(2048)],
  ];
  const results: { name: string; seconds: number; cpu: number; found: string }[] = [];
  for (const [name, moduli] of sets) {
    const body = new TextEncoder().encode(JSON.stringify({ keys: moduli.map(jwk) }));
    const began = performance.now();
    const used = process.cpuUsage();
    const findings = await examine({ at: Date.now(), set: { body } });
    const cpu = process.cpuUsage(used).user / 1_000_000;
    const seconds = (performance.now() - began) / 1000;
    const found = findings
      .filter(({ code }) => code.startsWith("JWKS_RSA"))
      .map(({ code, count }) => `${code} (${count})`);
    results.push({ name, seconds, cpu, found: found.join(", ") || "nothing" });
  }
  const ordinary = results.find(({ found }) => found === "nothing");
  return {
    title: "jwksd doctor: 1,000 RSA keys",
    text: [
      "`examine` checks a set of 1,000 RSA keys for small factors up to 65,536, the ROCA fingerprint, primes close to each other (100 rounds of Fermat's method), and shared primes. It spends most of its time dividing large integers. The moduli are products of 64-bit primes, which none of these checks detects.",
      table(
        ["moduli", "seconds", "CPU seconds", "found"],
        results.map(({ name, seconds, cpu, found }) => [name, seconds.toFixed(1), cpu.toFixed(1), found]),
      ),
    ].join("\n\n"),
    goals: [
      {
        name: `doctor: ${keys.toLocaleString("en")} RSA keys with 2048 bits within ${limitSeconds} s`,
        reached: (ordinary?.cpu ?? Infinity) <= limitSeconds,
        measured: ordinary === undefined ? "found something" : `${ordinary.cpu.toFixed(1)} s of CPU`,
      },
    ],
  };
}

function jwk(n: bigint, index: number): object {
  const hex = n.toString(16);
  const bytes = Buffer.from(hex.padStart(hex.length + (hex.length % 2), "0"), "hex");
  return { kty: "RSA", n: bytes.toString("base64url"), e: "AQAB", kid: `${index}`, alg: "RS256", use: "sig" };
}

function distinct(bits: number): bigint[] {
  return Array.from({ length: keys }, () => product(Array.from({ length: bits / 64 + 1 }, () => prime(64))));
}

/** Returns moduli from all pairs of a few primes. */
function sharing(bits: number): bigint[] {
  const primes = Array.from({ length: 46 }, () => prime(bits / 2));
  return primes.flatMap((one, index) => primes.slice(index + 1).map((other) => one * other)).slice(0, keys);
}

const prime = (bits: number): bigint => generatePrimeSync(bits, { bigint: true });
const product = (factors: readonly bigint[]): bigint => factors.reduce((one, other) => one * other, 1n);
