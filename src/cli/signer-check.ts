import type { CryptoKey, JWK } from "jose";
import { calculateJwkThumbprint } from "jose/jwk/thumbprint";
import { importJWK } from "jose/key/import";
import packageJson from "../../package.json" with { type: "json" };
import { JwksdError } from "../base/errors.ts";
import { boundSigner } from "../keys/signer/bounded-signer.ts";
import type { ExternalSigner } from "../keys/signer/signer.ts";
import { signersOf } from "../service/config/signers.ts";
import { wholeNumber } from "./argument-parsers.ts";
import { Command } from "./command.ts";
import { type Io, print } from "./io.ts";
import { addSettings, settingsFrom } from "./setting-flags.ts";

type CheckFlags = {
  readonly probes: number;
  readonly json?: true;
  readonly report?: true;
  readonly signers?: string;
};

/** Result of a check. If a step fails, the members for the later steps are missing. */
interface Report {
  readonly ok: boolean;
  readonly uri: string;
  readonly backend: string;
  readonly openMs?: number;
  readonly kid?: string;
  readonly curve?: string;
  /** Number of verified signatures. */
  readonly signatures?: number;
  readonly latencyMs?: { readonly median: number; readonly p99: number; readonly max: number };
  readonly failure?: { readonly code: string; readonly message: string };
}

const probeCount = wholeNumber(/^[1-9]\d{0,5}$/, "Must be a whole number from 1 to 999999.");

export function commandOf(io: Io): Command {
  const command = new Command("signer");
  const checking = command
    .command("check")
    .description("Open a key in an HSM or key service, sign test messages with it, and verify each signature.")
    .argument("<uri>", "the key's URI, including the key version")
    .option("--probes <number>", "number of signatures", probeCount, 100)
    .option("--json", "JSON output")
    .option("--report", "print a report that you can publish; it leaves out the key, its name and your account");
  addSettings(checking, ["signers"])
    .notes(`
Exit codes: 0, every signature is valid; 1, there was an error. The service's
SDK finds the credentials; docs/signers.md lists what each service needs.

Examples:
  $ jwksd signer check \\
      aws-kms:arn:aws:kms:eu-central-1:111122223333:key/KEY-ID
  $ VAULT_TOKEN=$(cat token) jwksd signer check \\
      vault-transit:https://vault.example.com/transit/login/1
  $ jwksd signer check 'pkcs11:token=jwksd;object=login' \\
      --signers signers.json`)
    .action(async (uri: string, flags: CheckFlags) => {
      const report = await check(io, uri, flags);
      if (flags.report === true) print(io, publicText(report));
      else print(io, flags.json === true ? JSON.stringify(report, undefined, 2) : reportText(report));
      if (!report.ok) io.exitCode = 1;
    });
  return command;
}

async function check(io: Io, uri: string, flags: CheckFlags): Promise<Report> {
  let report: Report = { ok: false, uri, backend: uri.split(":", 1)[0] ?? "" };
  let signer: ExternalSigner | undefined;
  const latencies: number[] = [];
  try {
    const openedAt = performance.now();
    signer = await open(io, uri, flags);
    // Both casts are safe: the signer interface has its own type for public JWKs, and jose returns bytes only for
    // symmetric keys.
    const publicKey = signer.publicKey as JWK;
    const openMs = sinceMs(openedAt);
    report = { ...report, openMs, kid: await calculateJwkThumbprint(publicKey), curve: String(publicKey.crv) };

    // A bounded signer limits the time for each signature and verifies it with the public key.
    const sign = boundSigner(signer, (await importJWK(publicKey, "ES256")) as CryptoKey, uri);
    const encoder = new TextEncoder();
    for (let probe = 0; probe < flags.probes; probe += 1) {
      const startedAt = performance.now();
      await sign(encoder.encode(`jwksd signer check ${probe} ${crypto.randomUUID()}`));
      latencies.push(sinceMs(startedAt));
    }
    return { ...report, ok: true, signatures: latencies.length, latencyMs: summary(latencies) };
  } catch (error) {
    if (!(error instanceof JwksdError)) throw error;
    const { code, message } = error;
    // A URI that was rejected may contain a password.
    const safeUri = code === "ERR_SIGNER_URI" ? `${report.backend}:…` : uri;
    return { ...report, uri: safeUri, signatures: latencies.length, failure: { code, message } };
  } finally {
    await signer?.close();
  }
}

/** Opens a key with the options from the signers file, as `serve` does. */
async function open(io: Io, uri: string, flags: CheckFlags): Promise<ExternalSigner> {
  const { signers } = await settingsFrom(io, { ...flags });
  const { openSigner } = await signersOf({ signers, signerType: "local", destroyExternal: false });
  return openSigner(uri);
}

function summary(latencies: readonly number[]): NonNullable<Report["latencyMs"]> {
  const sorted = latencies.toSorted((a, b) => a - b);
  const quantile = (part: number): number => sorted[Math.ceil(part * sorted.length) - 1] ?? Number.NaN;
  return { median: quantile(0.5), p99: quantile(0.99), max: quantile(1) };
}

/** Returns the time since `startMs`, in milliseconds, rounded to the nearest microsecond. */
const sinceMs = (startMs: number): number => Math.round((performance.now() - startMs) * 1000) / 1000;

const ms = (value: number): string => `${value.toFixed(value < 10 ? 2 : 0)} ms`;

function reportText({ uri, openMs, kid, curve, signatures, latencyMs, failure }: Report): string {
  const lines: string[] = [];
  if (openMs !== undefined)
    lines.push(`ok    open       ${uri} in ${ms(openMs)}`, `ok    key        ${curve}, kid ${kid}`);
  if (latencyMs !== undefined) {
    const { median, p99, max } = latencyMs;
    lines.push(`ok    signatures ${signatures}, each verified with the public key`);
    lines.push(`      latency    median ${ms(median)}, p99 ${ms(p99)}, max ${ms(max)}`);
  }
  if (failure !== undefined) {
    const step = openMs === undefined ? "open      " : `signatures after ${signatures} valid ones:`;
    lines.push(`FAIL  ${step} ${failure.message} [${failure.code}]`);
  }
  return lines.join("\n");
}

/**
 * Returns a Markdown report for the project's issue tracker. Leaves out the URI, the kid and any error messages,
 * because they may name the account.
 */
function publicText({ backend, openMs, curve, signatures = 0, latencyMs, failure }: Report): string {
  const failed = (what: string): string => `- ${what}: **failed**, ${failure?.code}`;
  const { platform, arch, versions } = process;
  return [
    `### jwksd signer check: ${failure === undefined ? "ok" : "failed"}`,
    "",
    `- service: ${backend} (add the product, its version, and the region or device)`,
    `- jwksd ${packageJson.version}, Node ${versions.node}, ${platform}-${arch}, ${new Date().toISOString().slice(0, 10)}`,
    openMs === undefined ? failed("open the key") : `- opened the key in ${ms(openMs)}; its curve is ${curve}`,
    ...(openMs === undefined || failure === undefined ? [] : [failed(`sign, after ${signatures} valid signatures`)]),
    ...(latencyMs === undefined
      ? []
      : [
          `- ${signatures} signatures, one after another, each verified with the public key`,
          `- latency: median ${ms(latencyMs.median)}, p99 ${ms(latencyMs.p99)}, max ${ms(latencyMs.max)}`,
        ]),
  ].join("\n");
}
