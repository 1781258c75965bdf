import type { TestContext } from "node:test";
import type { Register } from "../../src/rotation/store/register.ts";
import { eventually } from "../support/service.ts";

/** Watches a store, waits for the first call, and counts the calls. */
export async function watched(
  t: Pick<TestContext, "after">,
  store: Register,
): Promise<{ readonly calls: number; changed(change: () => unknown): Promise<void> }> {
  const controller = new AbortController();
  t.after(() => controller.abort());
  const seen = {
    calls: 0,
    /** Makes a change and waits for a call. */
    async changed(change: () => unknown) {
      const { calls } = seen;
      await change();
      await eventually("the watcher is called", () => seen.calls > calls);
    },
  };
  store.watch?.(() => void (seen.calls += 1), { signal: controller.signal });
  await eventually("the first call", () => seen.calls > 0);
  return seen;
}
