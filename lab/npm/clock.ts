// The clock of an npm verifier. It is loaded before the verifier, so that the whole verifier reads this clock.

const realNow = Date.now;
const realPerformance = performance.now.bind(performance);
const realSetTimeout = globalThis.setTimeout;
const realClearTimeout = globalThis.clearTimeout;

/** The clock stands still, except for timers, so that nothing depends on the speed of this machine. */
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

/** Returns the real time that has passed, in milliseconds. */
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
// No verifier uses these; one that did would be measured incorrectly.
globalThis.setInterval = () => {
  throw new Error("an interval is not on the clock of the lab");
};

/** Sets the clock. It never goes back: after a one-second wait, it has advanced by one second. */
export function setClock(ms: number): void {
  const due = [...waiting].filter(([, timer]) => timer.due <= ms).sort(([, one], [, other]) => one.due - other.due);
  for (const [timer, { fire }] of due) {
    realClearTimeout(timer);
    fire();
  }
  current = Math.max(current, ms);
}
