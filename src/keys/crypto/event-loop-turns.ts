/** Capacity of one turn of the event loop: four signing or verifying operations, each of which takes 20 to 60 µs. */
const capacity = 4;

let left = capacity;
const waiting: { readonly share: number; readonly start: () => void }[] = [];

/**
 * Runs an operation that blocks the event loop. If this turn has capacity left, the operation runs immediately;
 * otherwise, it runs in one of the next turns, in order. Other events run between turns, so a caller that signs in a
 * loop does not block them.
 *
 * @param share how much of a turn's capacity the operation needs, up to `wholeTurn`
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
