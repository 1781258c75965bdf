// The clock of a verifier of npm: loaded before the verifier, so that all of it reads this clock.

const realNow = Date.now;
const realPerformance = performance.now.bind(performance);
const realSetTimeout = globalThis.setTimeout;
const realClearTimeout = globalThis.clearTimeout;

/** The clock stands still, but for timers: so nothing depends on how fast this machine is. */
let current = realNow();
const began = current;

Date.now = () => current;
globalThis.Date = new Proxy(Date, {
  construct: (target, args, newTarget) =>
    Reflect.construct(target, args.length === 0 ? [current] : args, newTarget) as object,
});
Object.defineProperty(performance, "now", { value: () => current - began });
const bigint = (): bigint => BigInt(Math.round((current - began) * 1_000)) * 1_000n;
const hrtime = (since: readonly [number, number] = [0, 0]): [number, number] => {
  const nanoseconds = bigint() - BigInt(since[0]) * 1_000_000_000n - BigInt(since[1]);
  return [Number(nanoseconds / 1_000_000_000n), Number(nanoseconds % 1_000_000_000n)];
};
process.hrtime = Object.assign(hrtime, { bigint });

/** Milliseconds that have really passed. */
export const realMs = realPerformance;

interface Waiting {
  readonly due: number;
  readonly fire: () => void;
}
const waiting = new Map<NodeJS.Timeout, Waiting>();

/** A timer fires in real time, or when the clock is set to a time after it. */
const setTimer = (callback: (...args: unknown[]) => void, ms = 0, ...args: unknown[]): NodeJS.Timeout => {
  const due = current + ms;
  const fire = (): void => {
    waiting.delete(timer);
    current = Math.max(current, due);
    callback(...args);
  };
  const timer = realSetTimeout(fire, ms);
  waiting.set(timer, { due, fire });
  return timer;
};
globalThis.setTimeout = Object.assign(setTimer, { __promisify__: realSetTimeout.__promisify__ }) as typeof setTimeout;
globalThis.clearTimeout = (timer): void => {
  if (typeof timer === "object") waiting.delete(timer);
  realClearTimeout(timer);
};
// None of them has any; one that has would be measured wrongly.
globalThis.setInterval = () => {
  throw new Error("an interval is not on the clock of the lab");
};

/** Sets the clock. It never goes back: who has waited for a second is a second later. */
export function setClock(ms: number): void {
  const due = [...waiting].filter(([, timer]) => timer.due <= ms).sort(([, one], [, other]) => one.due - other.due);
  for (const [timer, { fire }] of due) {
    realClearTimeout(timer);
    fire();
  }
  current = Math.max(current, ms);
}
