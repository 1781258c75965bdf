import { relativeText, timeText } from "../../base/format.ts";
import { chartLegend, chartPatterns, chartStyle, escaped, planChart, text } from "../../rotation/explain/plan-chart.ts";
import { numberedSteps, shortened } from "../../rotation/explain/plan-scale.ts";
import type { RotationPlan } from "../../rotation/explain/plan.ts";
import { indented } from "../terminal.ts";

const margin = 28;
/** Estimated width of a character in the text below the chart. */
const characterWidth = 6.5;
const lineHeight = 19;

const style = `${chartStyle}
  .paper { fill: #ffffff; }
  @media screen and (prefers-color-scheme: dark) { .paper { fill: #161b22; } }`;

/**
 * Draws a plan as an SVG image for a runbook, without scripts or external resources. The background follows the
 * reader's light or dark mode. States differ in pattern as well as in color.
 */
export function planSvg(plan: RotationPlan, title: string): string {
  const { width, bottom, parts } = planChart(plan, margin, 118);
  const steps = stepTexts(plan, width, bottom + 108);
  const height = steps.bottom + margin;
  const picture = [
    `<rect class="paper" width="${width}" height="${height}"/>`,
    chartPatterns,
    text(margin, 42, title, "title"),
    text(margin, 64, subtitle(plan), "quiet"),
    ...parts,
    ...legend(plan, bottom + 78),
    ...steps.parts,
  ];
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" role="img">\n` +
    `<title>${escaped(title)}</title>\n<style>${style}\n</style>\n${picture.join("\n")}\n</svg>\n`
  );
}

function subtitle({ now, keys }: RotationPlan): string {
  const next = keys.some(({ kid }) => kid === undefined) ? "; (next) is a key that does not exist yet" : "";
  return `as of ${timeText(now)}; not to scale, but the axis shows the durations${next}`;
}

function legend(plan: RotationPlan, y: number): string[] {
  let x = margin;
  return chartLegend(plan).map(([pattern, meaning]) => {
    const part =
      `<rect class="${pattern}" x="${x}" y="${y - 11}" width="26" height="13" rx="2"/>` +
      text(x + 33, y, meaning, "quiet");
    x += 33 + meaning.length * characterWidth + 14;
    return part;
  });
}

function stepTexts(plan: RotationPlan, width: number, top: number): { parts: string[]; bottom: number } {
  const parts: string[] = [];
  const columns = Math.floor((width - 2 * margin - 32) / characterWidth);
  let y = top;
  for (const { number, at, steps } of numberedSteps(plan)) {
    parts.push(
      `<circle class="number" cx="${margin + 9}" cy="${y - 5}" r="9"/>`,
      text(margin + 9, y - 1, String(number), "number-text", "middle"),
      text(margin + 32, y, `${timeText(at)}, ${relativeText(at, plan.now)}`, "bold"),
    );
    y += lineHeight;
    for (const { title, reason, bound } of steps) {
      parts.push(text(margin + 32, y, shortened(title, columns), "kid"));
      y += lineHeight;
      for (const line of indented(`${reason} [${bound}]`, columns, 0)) {
        parts.push(text(margin + 32, y, line, "quiet"));
        y += lineHeight;
      }
    }
    y += 10;
  }
  return { parts, bottom: y };
}
