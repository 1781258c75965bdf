import { type RotationPlan, type PlanStep, planKeyName } from "./plan.ts";

/**
 * Time axis of a picture. The axis is not to scale, because a one-hour rotation must be as visible as 90 days without a
 * change. The distance between two moments is based on the logarithm of the time between them. The picture says that it
 * is not to scale.
 */
export interface PlanScale {
  /**
   * The current time, the times of both edges, and the times of all changes, in epoch milliseconds and in ascending
   * order.
   */
  readonly moments: readonly number[];
  /** Label for each moment, in UTC: its date or, if the previous moment has the same date, its time of day. */
  readonly labels: readonly string[];
  /** Returns the position of a time. Times outside the range are clamped to its edges. */
  readonly x: (time: number) => number;
  /** Returns a moment's number in the picture, starting at 1; `undefined` for a moment without future steps. */
  readonly numberOf: (time: number) => number | undefined;
}

const shortestMs = 600_000;

/**
 * Computes the axis.
 *
 * @param width width of the whole axis
 * @param least minimum width between two moments, if there is room
 * @param tail width after the last moment
 */
export function planScale(
  plan: RotationPlan,
  { width, least, tail }: { readonly width: number; readonly least: number; readonly tail: number },
): PlanScale {
  const moments = momentsOf(plan);
  const stretches = moments.slice(1).map((moment, index) => moment - (moments[index] ?? 0));
  const weights = stretches.map((ms) => Math.log2(1 + ms / shortestMs));
  const weight = weights.reduce((sum, one) => sum + one, 0);
  const room = width - tail;
  const floor = Math.min(least, Math.floor(room / Math.max(stretches.length, 1)));
  const rest = room - floor * stretches.length;
  let sum = 0;
  const positions = [
    0,
    ...weights.map((one, index) => {
      sum += one;
      return Math.round(floor * (index + 1) + (weight === 0 ? 0 : (rest * sum) / weight));
    }),
  ];
  const numbers = new Map(numberedSteps(plan).map(({ at, number }) => [at, number]));
  return {
    moments,
    labels: moments.map((moment, index) => {
      const [date = "", time = ""] = new Date(moment).toISOString().split("T");
      const before = moments[index - 1] ?? -Infinity;
      return before < Date.parse(date) ? date : time.slice(0, 5);
    }),
    x: (time) => positions[moments.findLastIndex((moment) => moment <= time)] ?? 0,
    numberOf: (time) => numbers.get(time),
  };
}

/** Verb for each step; the key's name follows it. */
export const planVerbs: Readonly<Record<PlanStep["action"], string>> = {
  announced: "announce",
  activated: "activate",
  retired: "retire",
  removed: "remove",
  revoked: "revoke",
  imported: "import",
  rewrapped: "rewrap",
  restarted: "restart the waiting period of",
  policy: "change the policy of",
};

/** Groups the steps of a plan by moment and adds each moment's number in the picture. */
export function numberedSteps(plan: RotationPlan) {
  const moments = [...new Set(plan.steps.map(({ at }) => at))].sort((a, b) => a - b);
  const titled = plan.steps.map((step) =>
    Object.assign({}, step, { title: `${planVerbs[step.action]} ${step.use} ${planKeyName(plan, step)}` }),
  );
  return moments.map((at, index) => ({ number: index + 1, at, steps: titled.filter((step) => step.at === at) }));
}

/**
 * Shortens a string to at most `length` characters. Keeps the beginning and the end, because that is where kids differ.
 */
export function shortened(text: string, length: number): string {
  if (text.length <= length) return text;
  const end = Math.floor((length - 1) / 2);
  return `${text.slice(0, length - 1 - end)}…${text.slice(text.length - end)}`;
}

/**
 * Returns the times to mark on the chart. The first is the start of the oldest current waiting period or, if there is
 * none, the time at which the active keys became active.
 */
function momentsOf({ now, until, segments, steps }: RotationPlan): number[] {
  const current = segments.filter(({ from, to = Infinity }) => from <= now && now < to);
  const waiting = current.filter(({ state }) => state !== "active");
  const first = Math.min(now, ...(waiting.length > 0 ? waiting : current).map(({ from }) => from));
  const times = [...segments.flatMap(({ from, to }) => [from, to ?? until]), ...steps.map(({ at }) => at)];
  return [...new Set([first, now, until, ...times.filter((time) => time > first)])].sort((a, b) => a - b);
}
