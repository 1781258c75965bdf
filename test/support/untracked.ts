// Loaded by scripts/test before each file, and before anything has loaded node:test. That follows each promise, to know which test an
// uncaught error belongs to: half of the time of a test that simulates days. Without it the error fails the file; `node --test FILE` names the test.
import hooks, { type AsyncHook, AsyncResource, type HookCallbacks } from "node:async_hooks";

const { createHook } = hooks;
const none: AsyncHook = { enable: () => none, disable: () => none };
let init: HookCallbacks["init"];

/** Stands for `createHook` in its first call, which is that of node:test. */
function takeFirst(callbacks: HookCallbacks): AsyncHook {
  Object.assign(hooks, { createHook, AsyncResource });
  ({ init } = callbacks);
  return none;
}

/** What tests and suites are. node:test hears of them alone, so that each test is in its suite. */
class Told extends AsyncResource {
  constructor(...args: ConstructorParameters<typeof AsyncResource>) {
    super(...args);
    init?.(this.asyncId(), args[0], this.triggerAsyncId(), this);
  }
}

if (process.argv[1]?.endsWith(".test.ts")) Object.assign(hooks, { createHook: takeFirst, AsyncResource: Told });
