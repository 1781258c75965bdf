/** Four signatures or verifications hold the event loop for 80 to 240 µs. */
const perTurn = 4;

let left = perTurn;
const waiting: (() => void)[] = [];

/**
 * Runs what holds the event loop: a few times in each of its turns at once, and else in one of the next turns, in order. So whatever
 * else waits for the event loop never waits for all of it, and somebody who signs in a loop stops nobody.
 */
export function inTurn<T>(operation: () => T): T | Promise<T> {
  if (left === 0) return new Promise<void>((resolve) => waiting.push(resolve)).then(operation);
  if (left === perTurn) setImmediate(nextTurn);
  left -= 1;
  return operation();
}

function nextTurn(): void {
  const next = waiting.splice(0, perTurn);
  left = perTurn - next.length;
  if (next.length > 0) setImmediate(nextTurn);
  for (const start of next) start();
}
