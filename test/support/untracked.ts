// Loaded by scripts/test before each file, and before anything has loaded node:test. That follows each promise, to know which test an
// uncaught error belongs to: half of the time of a test that simulates days. Without it the error fails the file; `node --test FILE` names the test.
import hooks, { type AsyncHook } from "node:async_hooks";

const { createHook } = hooks;
const none: AsyncHook = { enable: () => none, disable: () => none };

/** Stands for `createHook` in its first call, which is that of node:test. */
function skipFirst(): AsyncHook {
  Object.assign(hooks, { createHook });
  return none;
}

if (process.argv[1]?.endsWith(".test.ts")) Object.assign(hooks, { createHook: skipFirst });
