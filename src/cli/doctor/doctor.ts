import { readFile, writeFile } from "node:fs/promises";
import { InvalidArgumentError, Option } from "commander";
import { ConfigError, IoError, invalidOption } from "../../base/errors.ts";
import { writing } from "../../base/file-errors.ts";
import { allCodes } from "../../doctor/codes.ts";
import { atLeast, severities } from "../../doctor/finding.ts";
import { type Code, type Observations, type Severity, codes, examine } from "../../doctor/index.ts";
import {
  type TimelineEvent,
  type ObserveOptions,
  observeIssuer,
  observationsFromBody,
} from "../../doctor/node/index.ts";
import { seenToken } from "../../doctor/node/watch.ts";
import { describeRotation } from "../../doctor/rotation-practice.ts";
import { collect } from "../argument-parsers.ts";
import { Command } from "../command.ts";
import { type Io, iso, print, printJson, readInput } from "../io.ts";
import { terminalOf } from "../terminal.ts";
import { explainToken } from "./explain-token.ts";
import { findingsPage } from "./findings-page.ts";
import { explanationText, timelineLine, report, rotationText, scope } from "./findings-text.ts";
import { readToken } from "./verify.ts";
import { durationMs, watchOn } from "./watch.ts";

const maxFileBytes = 1_000_000;
const maxBlocklistBytes = 20_000_000;

interface Flags {
  readonly allowInsecure?: true;
  readonly failOn: Severity;
  readonly only?: readonly string[];
  readonly skip?: readonly string[];
  readonly blocklist?: string;
  readonly token?: string;
  readonly watch?: number | true;
  readonly tokenCommand?: string;
  readonly json?: true;
  readonly html?: string;
}

export function commandOf(io: Io): Command {
  return new Command("doctor")
    .argument(
      "<url-or-file>",
      'issuer, URL of a discovery document or JWK Set, or file with one of these documents; "-" reads standard input',
    )
    .option("--allow-insecure", "allow http URLs, and hosts at private and loopback addresses")
    .addOption(
      new Option("--fail-on <severity>", "lowest severity that causes exit code 1")
        .choices(severities)
        .default("broken"),
    )
    .option("--only <code>", "report only this code or group of codes; can be repeated", addCodes)
    .option("--skip <code>", "do not report this code or group of codes; can be repeated", addCodes)
    .option(
      "--blocklist <file>",
      "file that lists keys that must not be used: RFC 7638 thumbprints, lines from Debian's openssl-blacklist, or moduli and primes in hex",
    )
    .option(
      "--token <token>",
      'token to verify with the published keys, with an explanation of each step; "-" reads standard input',
    )
    .option(
      "--watch [duration]",
      "refetch the set every 5 s for this long, and print each change (90s, 10m, 2h; default: 1m)",
      durationMs,
    )
    .option(
      "--token-command <command>",
      "with --watch: shell command that is run before each fetch and prints a new token (or use --token -, which reads one token per line)",
    )
    .option("--json", "JSON output")
    .option("--html <file>", "also write the findings to an HTML file, to send to the provider's operator")
    .notes(`
Exit codes: 0, nothing is broken; 1, something is broken, or the token is
rejected; 2, there was nothing to check. docs/doctor.md explains every code. The
codes belong to these groups: ${groups().join(", ")}.

Examples:
  $ jwksd doctor https://login.example.com
  $ jwksd doctor https://login.example.com --fail-on risk --skip HTTP_NO_CORS
  $ jwksd doctor http://127.0.0.1:9900 --allow-insecure --json
  $ jwksd doctor https://login.example.com --token "$TOKEN"
  $ jwksd doctor https://login.example.com --html findings.html
  $ jwksd doctor https://login.example.com --watch 2h \\
      --token-command ./get-token
  $ jwksd doctor keys.json --only JWKS`)
    .action((target: string, flags: Flags) => doctor(io, target, flags));
}

async function doctor(io: Io, target: string, flags: Flags): Promise<void> {
  checkFlags(target, flags);
  const { watch } = flags;
  const readsLines = watch !== undefined && flags.token === "-";
  const token = flags.token === undefined || readsLines ? undefined : await readToken(io, flags.token);
  const blocklist = flags.blocklist === undefined ? new Set<string>() : await readBlocklist(flags.blocklist);
  const options = { allowInsecure: flags.allowInsecure === true };
  const first = { ...(await observeTarget(io, target, options)), blocklist };
  const timeline: TimelineEvent[] = [];
  const onEvent = (event: TimelineEvent): void => {
    timeline.push(event);
    if (flags.json !== true) print(io, timelineLine(event));
  };
  const observations = watch === undefined ? first : await watchOn(io, first, { ...flags, watch }, options, onEvent);
  const findings = (await examine(observations)).filter(({ code }) => isWanted(code, flags));
  const explanation =
    token === undefined
      ? undefined
      : await explainToken(token, observations, { target, allowInsecure: flags.allowInsecure });
  const rotation = await describeRotation(withToken(observations, token));
  const { html } = flags;
  if (html !== undefined)
    await writing(html, () => writeFile(html, findingsPage(target, observations, { findings, rotation, explanation })));
  if (flags.json === true) {
    const events = watch === undefined ? undefined : timeline.map(({ at, text }) => ({ at: iso(at), text }));
    const result = { target, ...scope(observations), findings, rotation, timeline: events, token: explanation };
    printJson(io, result);
  } else {
    const terminal = terminalOf(io);
    if (timeline.length > 0) print(io, "");
    // The token comes first, because the user passed it.
    if (explanation !== undefined)
      print(io, `The token:\n${explanationText(explanation, explanation.advice, terminal)}\n`);
    const refused = explanation?.verified === false ? " The token is rejected." : "";
    print(io, `${report(target, observations, findings, terminal)}${refused}`);
    if (rotation.length > 0) print(io, `\n${rotationText(rotation, terminal)}`);
  }
  const isRefused = explanation?.verified === false;
  if (isRefused || findings.some(({ severity }) => atLeast(severity, flags.failOn))) io.exitCode = 1;
}

/** Adds the token from `--token`. */
function withToken(observations: Observations, token: string | undefined): Observations {
  const seen = token === undefined ? undefined : seenToken(token, observations.at);
  return seen === undefined ? observations : { ...observations, tokens: [...(observations.tokens ?? []), seen] };
}

function checkFlags(target: string, { token, watch, tokenCommand }: Flags): void {
  const wrong =
    target === "-" && token === "-"
      ? "standard input cannot be both the document and the token"
      : watch !== undefined && !isUrl(target)
        ? "--watch requires a URL, not a file"
        : watch === undefined && tokenCommand !== undefined
          ? "--token-command requires --watch"
          : tokenCommand !== undefined && token === "-"
            ? "--token-command and --token - cannot be used together"
            : undefined;
  if (wrong !== undefined) throw invalidOption(wrong);
}

const isUrl = (target: string): boolean => /^[a-z][a-z\d+.-]*:\/\//i.test(target);

async function observeTarget(io: Io, target: string, options: ObserveOptions): Promise<Observations> {
  if (isUrl(target)) return observeIssuer(target, options);
  if (target !== "-") return observationsFromBody(await readBounded(target), Date.now());
  const body = await readInput(io, maxFileBytes);
  if (body.length > maxFileBytes) throw tooLarge("standard input", maxFileBytes);
  return observationsFromBody(body, Date.now());
}

async function readBounded(file: string, maxBytes = maxFileBytes): Promise<Buffer> {
  let body: Buffer;
  try {
    body = await readFile(file);
  } catch (error) {
    // Node's file errors have the operating system's error code.
    const { code = "no such file" } = error as NodeJS.ErrnoException;
    throw new IoError(
      "ERR_FILE_UNREADABLE",
      `cannot read the file ${file} (${code}); if it is a URL, include https://`,
    );
  }
  if (body.length > maxBytes) throw tooLarge(file, maxBytes);
  return body;
}

const tooLarge = (name: string, maxBytes: number): IoError =>
  new IoError("ERR_FILE_UNREADABLE", `${name} is larger than ${maxBytes.toLocaleString("en")} bytes`);

async function readBlocklist(file: string): Promise<Set<string>> {
  const text = (await readBounded(file, maxBlocklistBytes)).toString("utf8");
  const lines = text.split("\n").map((line) => line.replace(/#.*/, "").trim());
  const wrong = lines.findIndex((line) => line !== "" && !/^([\w-]{43}|[\da-f]{20}|[\da-f]{64,})$/.test(line));
  if (wrong !== -1) {
    throw new ConfigError(
      "ERR_CONFIG_FORMAT",
      `${file}: line ${wrong + 1} is neither an RFC 7638 thumbprint, nor 20 hex digits from openssl-blacklist, nor a hex number with at least 64 digits`,
    );
  }
  return new Set(lines.filter((line) => line !== ""));
}

function groups(): string[] {
  return [...new Set(allCodes.map((code) => code.slice(0, code.indexOf("_"))))];
}

function addCodes(value: string, before: readonly string[] = []): string[] {
  if (!Object.hasOwn(codes, value) && !groups().includes(value)) {
    throw new InvalidArgumentError(
      `There is no such code; docs/doctor.md lists all codes. Groups: ${groups().join(", ")}.`,
    );
  }
  return collect(value, before);
}

function isWanted(code: Code, { only, skip = [] }: Flags): boolean {
  const isIn = (list: readonly string[]): boolean =>
    list.some((wanted) => code === wanted || code.startsWith(`${wanted}_`));
  return (only === undefined || isIn(only)) && !isIn(skip);
}
