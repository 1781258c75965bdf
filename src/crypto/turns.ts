/** How much one turn of the event loop takes: four signatures or verifications, of 20 to 60 µs each. */
const capacity = 4;

let left = capacity;
const waiting: { readonly share: number; readonly start: () => void }[] = [];

/**
 * Runs what holds the event loop: at once while there is room in its turn, and else in one of the next turns, in order. So whatever
 * else waits for the event loop never waits for all of it, and somebody who signs in a loop stops nobody.
 *
 * @param share how much of a turn it takes; `wholeTurn` for what need not be quick
 */
export function inTurn<T>(operation: () => T, share: number = 1): T | Promise<T> {
  if (left < share || waiting.length > 0) {
    return new Promise<void>((start) => waiting.push({ share, start })).then(operation);
  }
  take(share);
  return operation();
}

export const wholeTurn = capacity;

function take(share: number): void {
  if (left === capacity) setImmediate(nextTurn);
  left -= share;
}

function nextTurn(): void {
  left = capacity;
  for (let [next] = waiting; next !== undefined && next.share <= left; [next] = waiting) {
    take(next.share);
    waiting.shift();
    next.start();
  }
}
