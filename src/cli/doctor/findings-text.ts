import { timeText } from "../../base/format.ts";
import { jsonOf } from "../../base/json.ts";
import { printableLine } from "../../base/printable.ts";
import { severities } from "../../doctor/finding.ts";
import type { HttpExchange, Finding, Observations, Severity } from "../../doctor/index.ts";
import { entriesIn } from "../../doctor/lenient-json.ts";
import type { TimelineEvent } from "../../doctor/node/index.ts";
import { setResponse } from "../../doctor/read-exchange.ts";
import { byFailingTokens, nameWithVersion } from "../../doctor/value-text.ts";
import { type Color, type Terminal, indented, colored } from "../terminal.ts";
import type { Explanation } from "./verification-steps.ts";

const labelWidth = 10;
const colors: Readonly<Record<Severity, Color>> = { broken: "red", risk: "yellow", advice: "cyan" };

/** Describes what was checked. */
export function scope(observations: Observations) {
  const { discovery, set, probes = {}, certificates = {} } = observations;
  const keys = keyCount(setResponse(observations));
  const checked = [
    ...(keys === undefined ? [] : [keys === 1 ? "1 key" : `${keys} keys`]),
    ...(Object.keys(certificates).length > 0 ? ["certificates"] : []),
    ...(set?.status === undefined ? [] : [`HTTP in ${1 + Object.keys(probes).length} requests`]),
    ...(set?.tls === undefined ? [] : ["TLS"]),
    ...(discovery === undefined ? [] : ["discovery"]),
  ];
  return { checked, keys, kind: kindOf(observations) };
}

/** Returns the kind of document that the target turned out to be. */
function kindOf({ issuer, discovery, set }: Observations): string | undefined {
  if (issuer !== undefined) return "issuer";
  if (discovery !== undefined) return "discovery document";
  return set === undefined ? undefined : "JWK Set";
}

/** Describes what was checked, as a sentence. */
export function scopeText(observations: Observations): string {
  const { checked, kind = "document" } = scope(observations);
  const what = checked.length === 0 ? "" : `: ${checked.join(", ")}`;
  return `Checked as ${kind === "issuer" ? "an" : "a"} ${kind}${what}.`;
}

/** Counts the findings by severity. */
export const counts = (findings: readonly Finding[]): string =>
  severities
    .map((severity) => `${findings.filter((finding) => finding.severity === severity).length} ${severity}`)
    .join(", ");

/** Formats the sentences about key rotation. */
export const rotationText = (rotation: readonly string[], { columns }: Terminal): string =>
  ["Key rotation:", ...rotation.flatMap((text) => indented(printableLine(text), columns, 2))].join("\n");

function keyCount(set: HttpExchange | undefined): number | undefined {
  return set?.body === undefined ? undefined : entriesIn(jsonOf(new TextDecoder().decode(set.body)))?.length;
}

/** Formats the findings, worst first. If there are none, returns one line. */
export function report(
  target: string,
  observations: Observations,
  findings: readonly Finding[],
  terminal: Terminal,
): string {
  const checked = scopeText(observations);
  if (findings.length === 0) return `${printableLine(target)}: no problems found. ${checked}`;
  const sections = findings.map((finding) => section(finding, terminal));
  return [...sections, `${printableLine(target)}: ${counts(findings)}. ${checked}`].join("\n\n");
}

/** Formats a verification's steps, and the advice. */
export function explanationText({ verified, steps }: Explanation, advice: string | undefined, { columns }: Terminal) {
  const lines = steps.map(
    ({ ok, step, detail }) => `${ok ? "ok  " : "FAIL"}  ${step.padEnd(10)} ${printableLine(detail)}`,
  );
  const valid = verified ? ["", "The token is valid."] : [];
  const next = advice === undefined ? [] : ["", ...indented(`What to do: ${printableLine(advice)}`, columns, 0)];
  return [...lines, ...valid, ...next].join("\n");
}

/** Formats an event as a line in the timeline. */
export function timelineLine({ at, text }: TimelineEvent): string {
  return `${timeText(at)}  ${printableLine(text)}`;
}

/** Returns the parts of a finding with their labels. */
export function partsOf(finding: Finding) {
  const { seen, count, effect, remedy, rule, link } = finding;
  const more = count > seen.length ? [`and ${(count - seen.length).toLocaleString("en")} more`] : [];
  const parts = [
    ["seen", [...seen, ...more]],
    ["effect", [effect]],
    ["fails", failureTexts(finding)],
    ["do", [remedy]],
    ["rule", [rule]],
    ["more", [link]],
  ] as const;
  return parts.filter(([, texts]) => texts.length > 0);
}

function section(finding: Finding, terminal: Terminal): string {
  const { code, severity, title } = finding;
  const head = `${colored(severity, terminal.color ? colors[severity] : undefined)}  ${code}: ${title}`;
  return [head, ...partsOf(finding).flatMap(([label, lines]) => block(label, lines, terminal))].join("\n");
}

/** Formats a label and the lines after it, and wraps each line. */
function block(label: string, lines: readonly string[], { columns }: Terminal): string[] {
  const [first = "", ...rest] = lines.flatMap((line) => indented(printableLine(line), columns, labelWidth));
  return [`  ${label.padEnd(labelWidth - 2)}${first.trimStart()}`, ...rest];
}

/**
 * Describes which verifiers fail, in the words of docs/doctor.md: one line for verifiers that reject all tokens, and
 * one for those that reject the tokens signed with the key.
 */
function failureTexts({ breaks, tried }: Finding): string[] {
  if (breaks.length === 0)
    return tried === 0 ? [] : [`None of the ${tried} verifiers that were run rejected any tokens.`];
  return byFailingTokens(breaks).map(({ label, verifiers }) => `${label}: ${verifiers.map(verifierText).join(", ")}.`);
}

function verifierText(verifier: Finding["breaks"][number]): string {
  const { source, inSomeForms } = verifier;
  const remarks = [...(source === undefined ? [] : [sourceText(source)]), ...(inSomeForms ? ["in some cases"] : [])];
  return `${nameWithVersion(verifier)}${remarks.length === 0 ? "" : ` (${remarks.join(", ")})`}`;
}

/** Shortens a source: `owner/name#1` for an issue, `file#L1` for a line. */
const sourceText = (source: string): string =>
  source.includes("/issues/")
    ? source.replace(/^https:\/\/github\.com\/(.+)\/issues\//, "$1#")
    : source.replace(/^.*\//, "");
