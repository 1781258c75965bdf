import assert from "node:assert/strict";
import { inspect } from "node:util";
import { type JwksdErrorCode, JwksdError } from "../../src/index.ts";
import { keyMaterial } from "./keys.ts";

/** Returns the error of an attempt, which must be a JwksdError with this code. */
export async function refusal(attempt: () => unknown, code: JwksdErrorCode): Promise<JwksdError> {
  const error = await (async () => attempt())().then(
    () => assert.fail(`nothing was refused; expected ${code}`),
    (thrown: unknown) => thrown,
  );
  assert.ok(error instanceof JwksdError, `expected ${code}, not ${inspect(error)}`);
  assert.equal(error.code, code, error.message);
  assert.equal(error.retryable, false);
  return error;
}

/** Asserts that an error contains none of the input's key material: in its message, stack, causes, or members at any depth. */
export function assertSilent(error: JwksdError, input: unknown): void {
  const shown = inspect(error, { depth: Infinity, showHidden: true }) + JSON.stringify([error, error.cause]);
  for (const run of keyMaterial(input)) {
    assert.ok(!shown.includes(run), `key material in: ${shown}`);
    // A part that could be recognized must not occur either.
    assert.ok(!shown.includes(run.slice(0, 12)), `the beginning of key material in: ${shown}`);
  }
}
