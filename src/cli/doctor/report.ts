import { setResponse } from "../../doctor/exchange.ts";
import { severities } from "../../doctor/finding.ts";
import type { Happening } from "../../doctor/node/index.ts";
import type { Break, Exchange, Finding, Observations, Severity } from "../../doctor/index.ts";
import { jsonOf } from "../../base/json.ts";
import { printable } from "../../base/printable.ts";
import { type Color, type Terminal, indented, painted } from "../../service/admin/terminal.ts";

const labelWidth = 10;
const colors: Readonly<Record<Severity, Color>> = { broken: "red", risk: "yellow", advice: "cyan" };

/** What was checked, for the report. */
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
  return { checked, keys };
}

function keyCount(set: Exchange | undefined): number | undefined {
  if (set?.body === undefined) return undefined;
  const { keys } = Object(jsonOf(new TextDecoder().decode(set.body))) as { keys?: unknown };
  return Array.isArray(keys) ? keys.length : undefined;
}

/** The findings as text, worst first; one line if there are none. */
export function report(
  target: string,
  observations: Observations,
  findings: readonly Finding[],
  terminal: Terminal,
): string {
  const { checked } = scope(observations);
  const looked = `Checked ${checked.length === 0 ? "the document" : checked.join(", ")}.`;
  if (findings.length === 0) return `${printable(target)}: nothing is wrong. ${looked}`;
  const counts = severities
    .map((severity) => `${findings.filter((finding) => finding.severity === severity).length} ${severity}`)
    .join(", ");
  const sections = findings.map((finding) => section(finding, terminal));
  return [...sections, `${printable(target)}: ${counts}. ${looked}`].join("\n\n");
}

/** A line of the timeline, with the time of day in UTC. */
export function happeningLine({ at, text }: Happening): string {
  return `${new Date(at).toISOString().slice(11, 19)}  ${printable(text)}`;
}

function section(finding: Finding, terminal: Terminal): string {
  const { code, severity, title, seen, count, rule, breaks, remedy, link } = finding;
  const more = count > seen.length ? [`and ${(count - seen.length).toLocaleString("en")} more`] : [];
  const head = `${painted(severity, terminal.color ? colors[severity] : undefined)}  ${code}: ${title}`;
  const parts: readonly (readonly [label: string, lines: readonly string[]])[] = [
    ["seen", [...seen, ...more]],
    ["rule", [rule]],
    ["breaks", breaks.map(whom)],
    ["do", [remedy]],
    ["more", [link]],
  ];
  return [head, ...parts.flatMap(([label, lines]) => block(label, lines, terminal))].join("\n");
}

/** Lines after a label, each wrapped. */
function block(label: string, lines: readonly string[], { columns }: Terminal): string[] {
  const [first, ...rest] = lines.flatMap((line) => indented(printable(line), columns, labelWidth));
  if (first === undefined) return [];
  return [`  ${label.padEnd(labelWidth - 2)}${first.trimStart()}`, ...rest];
}

function whom({ client, version, fails, issue }: Break): string {
  const tokens = fails === "every token" ? "all tokens" : "tokens of the key";
  const source = issue === undefined ? "" : `, ${issue.replace(/^https:\/\/github\.com\/(.+)\/issues\//, "$1#")}`;
  return `${client} ${version}: ${tokens}${source}`;
}
