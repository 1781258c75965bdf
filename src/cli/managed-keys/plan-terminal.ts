import { durationText, relativeText, timeText } from "../../base/format.ts";
import { type Pattern, chartLegend } from "../../rotation/explain/plan-chart.ts";
import { type PlanScale, numberedSteps, planScale, shortened } from "../../rotation/explain/plan-scale.ts";
import { type RotationPlan, planKeyName } from "../../rotation/explain/plan.ts";
import { type Color, type Terminal, indented, colored } from "../terminal.ts";

/** Characters used to draw the picture, in Unicode and in ASCII. */
const glyphs = {
  announced: ["╍", "."],
  active: ["█", "#"],
  retiring: ["▒", "="],
  revoked: ["x", "x"],
  mode: ["▀", "~"],
  now: ["│", "|"],
  axis: ["─", "-"],
  tick: ["┼", "+"],
  on: ["▶", ">"],
  since: ["◀", "<"],
} as const;

type Glyph = (name: keyof typeof glyphs) => string;
const glyphIn =
  (ascii: boolean): Glyph =>
  (name) =>
    glyphs[name][ascii ? 1 : 0];

const colors: Readonly<Record<Pattern | "quiet", Color>> = {
  announced: "yellow",
  active: "green",
  retiring: "cyan",
  revoked: "red",
  mode: "magenta",
  quiet: "dim",
};

const narrowest = 40;

/** One character in the picture. */
interface Cell {
  readonly text: string;
  readonly color?: Color;
}

const blank = (width: number, text = " "): Cell[] => Array.from({ length: width }, () => ({ text }));

function put(cells: Cell[], start: number, text: string): void {
  text.split("").forEach((character, place) => (cells[start + place] = { text: character }));
}

/** Draws a plan as a picture for a terminal, with the list of steps below it. */
export function planPicture(plan: RotationPlan, terminal: Terminal): string {
  const columns = Math.max(terminal.columns, narrowest);
  const wide = { ...terminal, columns };
  return [...timeline(plan, wide), "", ...legend(plan, wide), "", ...stepLines(plan, columns)].join("\n");
}

function timeline(plan: RotationPlan, { columns, color, ascii }: Terminal): string[] {
  const glyph = glyphIn(ascii);
  const names = plan.keys.map((key) => ({ ...key, name: planKeyName(plan, key) }));
  const longest = Math.max("rotation mode".length, ...names.map(({ name }) => name.length + 4));
  const labelWidth = Math.min(longest, Math.max(13, Math.floor(columns * 0.3)));
  const width = columns - labelWidth - 1;
  const scale = planScale(plan, { width, least: 3, tail: 3 });
  const nowAt = scale.x(plan.now);

  const line = (label: string, cells: readonly Cell[]): string =>
    `${label.padEnd(labelWidth)} ${cells.map(({ text, color: one }) => colored(text, color && text !== " " ? one : undefined)).join("")}`.trimEnd();
  const withNow = (): Cell[] => blank(width).with(nowAt, { text: glyph("now"), color: colors.quiet });
  const fill = (cells: Cell[], from: number, to: number | undefined, cell: Cell): void => {
    const end = to === undefined ? width : scale.x(to);
    for (let at = scale.x(from); at < end; at += 1) cells[at] = cell;
  };

  const bars = names.map(({ key, use, name }) => {
    const cells = withNow();
    for (const { state, from, to } of plan.segments.filter((segment) => segment.key === key)) {
      if (state === "removed") continue;
      fill(cells, from, to, { text: glyph(state), color: colors[state] });
      if (from < (scale.moments[0] ?? 0) && (to ?? Infinity) > (scale.moments[0] ?? 0)) {
        cells[0] = { text: glyph("since"), color: colors[state] };
      }
      if (to === undefined) cells[width - 1] = { text: glyph("on"), color: colors[state] };
    }
    if (cells[nowAt]?.text !== " ") cells[nowAt] = { text: glyph("now") };
    return line(
      `${use} ${ascii ? shortened(name, labelWidth - 4).replace("…", "~") : shortened(name, labelWidth - 4)}`,
      cells,
    );
  });
  const mode = withNow();
  for (const { from, to } of plan.rotation) {
    if ((to ?? Infinity) > (scale.moments[0] ?? 0)) fill(mode, from, to, { text: glyph("mode"), color: colors.mode });
  }
  return [
    line("", labels(plan, scale, width, true)),
    ...bars,
    line("rotation mode", mode),
    line("", axis(scale, width, glyph)),
    line("", labels(plan, scale, width, false)),
  ];
}

/** Draws the axis: a tick for each moment and, if there is room, the time between adjacent ticks. */
function axis({ moments, x }: PlanScale, width: number, glyph: Glyph): Cell[] {
  const cells = blank(width, glyph("axis"));
  moments.forEach((moment, index) => {
    cells[x(moment)] = { text: glyph("tick") };
    const next = moments[index + 1];
    if (next === undefined) return;
    const space = x(next) - x(moment) - 1;
    const exact = durationText(next - moment);
    const text = [` ${exact} `, exact, /^\d+ \w+/.exec(exact)?.[0] ?? ""].find((one) => one.length <= space);
    if (text === undefined) return;
    put(cells, x(moment) + 1 + Math.floor((space - text.length) / 2), text);
  });
  return cells;
}

/**
 * Draws the labels: "now" and the step numbers above the bars, dates below them. Omits any label that does not fit,
 * because the list of steps contains it.
 */
function labels(plan: RotationPlan, scale: PlanScale, width: number, above: boolean): Cell[] {
  const { moments, x, numberOf } = scale;
  const cells = blank(width);
  const texts = moments.map((moment, index) => {
    const name = moment === plan.now ? "now" : numberOf(moment)?.toString();
    // Without the year.
    const text = above ? name : scale.labels[index]?.replace(/^\d{4}-/, "");
    return { moment, text, isFirst: moment === plan.now || text?.includes("-") === true };
  });
  // Dates come first, because a time of day means nothing without its date.
  for (const { moment, text } of texts.toSorted((a, b) => Number(b.isFirst) - Number(a.isFirst))) {
    if (text === undefined) continue;
    const start = Math.min(Math.max(x(moment) - (above ? 0 : 2), 0), width - text.length);
    const taken = cells.slice(Math.max(start - 1, 0), start + text.length + 1).some((cell) => cell.text !== " ");
    if (!taken) put(cells, start, text);
  }
  return cells;
}

function legend(plan: RotationPlan, { columns, color, ascii }: Terminal): string[] {
  const glyph = glyphIn(ascii);
  const lines = chartLegend(plan).map(
    ([pattern, meaning]) => `${colored(glyph(pattern), color ? colors[pattern] : undefined)} ${meaning}`,
  );
  return [...lines, ...indented(note(plan), columns, 0)];
}

function note({ keys }: RotationPlan): string {
  const scale = "Not to scale, but the axis shows the durations. All times are UTC.";
  return keys.some(({ kid }) => kid === undefined) ? `(next) is a key that does not exist yet. ${scale}` : scale;
}

/** Formats the numbered steps, each with its date, reason and bound. */
function stepLines(plan: RotationPlan, columns: number): string[] {
  const moments = numberedSteps(plan);
  if (moments.length === 0) return ["No steps are planned."];
  const indent = `${moments.length}`.length + 2;
  const lines: string[] = [];
  for (const { number, at, steps } of moments) {
    const [date = "", ...more] = indented(`${timeText(at)}, ${relativeText(at, plan.now)}`, columns, indent);
    lines.push(`${String(number).padStart(indent - 2)}  ${date.trimStart()}`, ...more);
    for (const { title, reason, bound } of steps) {
      lines.push(...indented(title, columns, indent), ...indented(`${reason} [${bound}]`, columns, indent + 2));
    }
  }
  return lines;
}
