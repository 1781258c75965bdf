// Loaded before each test file. The test runner follows every promise, to tell which test an uncaught error belongs to, and that takes
// half of the time of a simulation. Without it, such an error fails the file.
import hooks, { type HookCallbacks } from "node:async_hooks";

const { createHook } = hooks;
// The first hook is the runner's.
hooks.createHook = (callbacks) => {
  hooks.createHook = createHook;
  const options: HookCallbacks & { trackPromises: boolean } = { ...callbacks, trackPromises: false };
  return createHook(options);
};
