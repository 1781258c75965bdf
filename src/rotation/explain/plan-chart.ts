import { durationText, timeText } from "../../base/format.ts";
import type { KeyState } from "../rules/key-records.ts";
import { type PlanScale, planScale, shortened } from "./plan-scale.ts";
import { type RotationPlan, planKeyName } from "./plan.ts";

/** Width of the column of key names, to the left of the bars. */
const labelWidth = 210;
/**
 * Minimum distance between two moments. It leaves room for a moment's number and date, and for the duration until the
 * next moment.
 */
const leastStretch = 84;
const tail = 40;
const leastWidth = 1000;
const rowHeight = 34;
const barHeight = 20;

/** Height of the axis, which is drawn below the last bar. */
export const axisHeight = 58;

/** CSS for a chart. */
export const chartStyle = `
  text { font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; font-size: 13px; fill: #1c2430; }
  .title { font-size: 19px; font-weight: 600; }
  .kid { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: 12.5px; }
  .quiet { fill: #5a6675; font-size: 12px; }
  .bold { font-weight: 600; }
  .active { fill: #2f7d4f; stroke: #2f7d4f; }
  .announced { fill: #fff3cd; stroke: #a87400; stroke-dasharray: 4 3; }
  .retiring { fill: url(#stripes); stroke: #3a6ea5; }
  .revoked { fill: url(#crosses); stroke: #b3261e; }
  .stripe { stroke: #3a6ea5; }
  .cross { stroke: #b3261e; }
  .mode { fill: #7b4fb5; fill-opacity: 0.13; }
  .mode-edge { fill: #7b4fb5; }
  .line { stroke: #8a94a3; fill: none; }
  .guide { stroke: #c9d0d9; stroke-dasharray: 2 4; }
  .now { stroke: #c2410c; stroke-width: 2; }
  .now-text { fill: #c2410c; font-weight: 600; }
  .number { fill: #1c2430; }
  .number-text { fill: #ffffff; font-size: 11px; font-weight: 600; }
  .on-active { fill: #ffffff; font-size: 11px; }
  .on-light { fill: #1c2430; font-size: 11px; paint-order: stroke; stroke: #ffffff; stroke-width: 3px; }
  @media screen and (prefers-color-scheme: dark) {
    text { fill: #e6eaf0; }
    .quiet { fill: #9aa6b5; }
    .announced { fill: #4a3a10; stroke: #d9a520; }
    .retiring { stroke: #7fb0e6; }
    .stripe { stroke: #7fb0e6; }
    .revoked { stroke: #ff7b72; }
    .cross { stroke: #ff7b72; }
    .mode { fill: #b794f4; fill-opacity: 0.16; }
    .mode-edge { fill: #b794f4; }
    .guide { stroke: #39424e; }
    .now { stroke: #fb923c; }
    .now-text { fill: #fb923c; }
    .number { fill: #e6eaf0; }
    .number-text { fill: #161b22; }
    .on-active { fill: #ffffff; }
    .on-light { fill: #e6eaf0; stroke: #161b22; }
  }`;

/** Pattern for a bar, or for the area that shows rotation mode behind all bars. */
export type Pattern = Exclude<KeyState, "removed"> | "mode";

/** Returns the patterns used in a chart, with their meanings. */
export function chartLegend({ segments }: RotationPlan): readonly (readonly [pattern: Pattern, meaning: string])[] {
  const isRevoked = segments.some(({ state }) => state === "revoked");
  return [
    ["announced", "announced: published only"],
    ["active", "active"],
    ["retiring", "retiring"],
    ...(isRevoked ? [["revoked", "revoked, but may still be cached"] as const] : []),
    ["mode", "rotation mode: cached for 5 min"],
  ];
}

/** SVG patterns for the bars. Include them once per document. */
export const chartPatterns =
  '<defs><pattern id="stripes" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">' +
  '<line class="stripe" x1="0" y1="0" x2="0" y2="7" stroke-width="4"/></pattern>' +
  '<pattern id="crosses" width="8" height="8" patternUnits="userSpaceOnUse">' +
  '<path class="cross" d="M0 0L8 8M8 0L0 8" stroke-width="1.5"/></pattern></defs>';

/**
 * Draws keys as bars over a time axis, as SVG elements below `top`. States differ in pattern as well as in color.
 *
 * @returns the elements, their total width, and the y coordinate of the last bar's bottom
 */
export function planChart(plan: RotationPlan, margin: number, top: number) {
  const stretches = planScale(plan, { width: 1, least: 0, tail: 0 }).moments.length - 1;
  const axisWidth = Math.max(leastWidth - 2 * margin - labelWidth, stretches * leastStretch + tail);
  const scale = planScale(plan, { width: axisWidth, least: leastStretch, tail });
  const left = margin + labelWidth;
  const bottom = top + plan.keys.length * rowHeight;
  const chart = { scale, left, right: left + axisWidth, top, bottom };
  return {
    width: axisWidth + labelWidth + 2 * margin,
    bottom,
    parts: [
      ...modeShade(plan, chart),
      ...guides(plan, chart),
      ...plan.keys.map((key, row) => bars(plan, key, chart, top + row * rowHeight)),
      ...axis(chart),
      ...nowLine(plan, chart),
      ...plan.keys.map((key, row) => keyName(plan, key, margin, top + row * rowHeight)),
    ],
  };
}

interface Chart {
  readonly scale: PlanScale;
  readonly left: number;
  readonly right: number;
  readonly top: number;
  readonly bottom: number;
}

function span({ scale, left, right }: Chart, from: number, to: number | undefined): { x: number; width: number } {
  const x = left + scale.x(from);
  return { x, width: (to === undefined ? right : left + scale.x(to)) - x };
}

function modeShade(plan: RotationPlan, chart: Chart): string[] {
  const { scale, top, bottom } = chart;
  const first = scale.moments[0] ?? 0;
  return plan.rotation.flatMap(({ from, to }) => {
    if ((to ?? Infinity) <= first) return [];
    const { x, width } = span(chart, from, to);
    const label = labelIn(plan, chart, x, width, ["rotation mode: cached for 5 min", "5 min"]);
    return [
      `<rect class="mode" x="${x}" y="${top - 22}" width="${width}" height="${bottom - top + 22}"/>`,
      `<rect class="mode-edge" x="${x}" y="${top - 24}" width="${width}" height="3"/>`,
      ...(label === undefined ? [] : [text(label.x, top - 8, label.name, "quiet")]),
    ];
  });
}

/** Returns the first name that fits into a bar without crossing the "now" line, and its x coordinate. */
function labelIn({ now }: RotationPlan, { scale, left }: Chart, x: number, width: number, names: readonly string[]) {
  const line = left + scale.x(now);
  for (const name of names) {
    const needed = name.length * 6.5 + 12;
    const begin = line >= x && line < x + needed ? line : x;
    if (begin + needed <= x + width) return { x: begin + 8, name };
  }
  return undefined;
}

function guides({ now }: RotationPlan, { scale, left, top, bottom }: Chart): string[] {
  return scale.moments
    .filter((moment) => moment !== now)
    .map((moment) => line("guide", left + scale.x(moment), top - 4, left + scale.x(moment), bottom + 14));
}

type Key = RotationPlan["keys"][number];

function keyName(plan: RotationPlan, key: Key, margin: number, y: number): string {
  const name = planKeyName(plan, key);
  return [
    `<g><title>${escaped(name)}</title>`,
    text(margin, y + 22, key.use, "quiet bold"),
    text(margin + 32, y + 22, shortened(name, 22), "kid"),
    "</g>",
  ].join("");
}

function bars(plan: RotationPlan, key: Key, chart: Chart, y: number): string {
  const name = planKeyName(plan, key);
  const first = chart.scale.moments[0] ?? 0;
  return plan.segments
    .filter((segment) => segment.key === key.key && segment.state !== "removed" && (segment.to ?? Infinity) > first)
    .map(({ state, from, to }) => {
      const { x, width } = span(chart, from, to);
      const label = labelIn(plan, chart, x, width, [state]);
      const hint = `${name}: ${state} from ${timeText(from)}${to === undefined ? "" : ` until ${timeText(to)}`}`;
      return (
        `<g><title>${escaped(hint)}</title>` +
        `<rect class="${state}" x="${x}" y="${y + 7}" width="${width}" height="${barHeight}" rx="2"/>` +
        `${label === undefined ? "" : text(label.x, y + 21, state, state === "active" ? "on-active" : "on-light")}</g>`
      );
    })
    .join("");
}

function axis({ scale, left, right, bottom }: Chart): string[] {
  const y = bottom + 14;
  const parts = [line("line", left, y, right, y)];
  scale.moments.forEach((moment, index) => {
    const x = left + scale.x(moment);
    const next = scale.moments[index + 1];
    parts.push(line("line", x, y - 5, x, y + 5));
    parts.push(text(x, y + 36, scale.labels[index] ?? "", "quiet", "middle"));
    const number = scale.numberOf(moment);
    if (number !== undefined) {
      parts.push(
        `<circle class="number" cx="${x}" cy="${y + 13}" r="9"/>`,
        text(x, y + 17, String(number), "number-text", "middle"),
      );
    }
    if (next !== undefined) {
      const middle = (x + left + scale.x(next)) / 2;
      const exact = durationText(next - moment);
      const fits = exact.length * 6.8 < scale.x(next) - scale.x(moment) - 30;
      parts.push(text(middle, y + 17, fits ? exact : (/^\d+ \w+/.exec(exact)?.[0] ?? exact), "quiet", "middle"));
    }
  });
  return parts;
}

function nowLine({ now }: RotationPlan, { scale, left, top, bottom }: Chart): string[] {
  const x = left + scale.x(now);
  return [line("now", x, top - 28, x, bottom + 19), text(x, top - 33, "now", "now-text", "middle")];
}

function line(name: string, x1: number, y1: number, x2: number, y2: number): string {
  return `<line class="${name}" x1="${x1}" y1="${y1}" x2="${x2}" y2="${y2}"/>`;
}

export function text(
  x: number,
  y: number,
  content: string,
  name: string,
  anchor: "start" | "middle" = "start",
): string {
  const place = anchor === "start" ? "" : ` text-anchor="${anchor}"`;
  return `<text x="${x}" y="${y}" class="${name}"${place}>${escaped(content)}</text>`;
}

/** Escapes a string for XML. Key names are already printable ASCII. */
export function escaped(content: string): string {
  return content.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}
