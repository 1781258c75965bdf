import assert from "node:assert/strict";
import { inspect } from "node:util";
import { type ErrorCode, JwksdError } from "../../src/index.ts";
import { keyMaterial } from "./keys.ts";

/** The error that an attempt ends in, which must be one of this project's, with this code. */
export async function refusal(attempt: () => unknown, code: ErrorCode): Promise<JwksdError> {
  const error = await (async () => attempt())().then(
    () => assert.fail(`nothing was refused; expected ${code}`),
    (thrown: unknown) => thrown,
  );
  assert.ok(error instanceof JwksdError, `expected ${code}, not ${inspect(error)}`);
  assert.equal(error.code, code, error.message);
  assert.equal(error.retryable, false);
  return error;
}

/** Nothing of the input's key material is in the error: message, stack, causes, members of any depth. */
export function assertSilent(error: JwksdError, input: unknown): void {
  const shown = inspect(error, { depth: Infinity, showHidden: true }) + JSON.stringify([error, error.cause]);
  for (const run of keyMaterial(input)) {
    assert.ok(!shown.includes(run), `key material in: ${shown}`);
    // Nor a part of it that would still be recognized.
    assert.ok(!shown.includes(run.slice(0, 12)), `the beginning of key material in: ${shown}`);
  }
}
