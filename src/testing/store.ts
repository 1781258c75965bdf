import { describe, test } from "node:test";
import type { KeyStore } from "../rotation/store/store.ts";
import type { StoreTest } from "./records.ts";
import { checkCommits } from "./store-commits.ts";
import { checkLeases } from "./store-leases.ts";
import { checkWatch } from "./store-watch.ts";

/** One store to hold against the contract, empty. */
export interface StoreUnderTest {
  /** Another handle on it, as another process would have; called at least once. A store without handles gives itself. */
  readonly handle: () => Promise<KeyStore>;
  /** Takes everything away, after all handles have been closed. */
  readonly end?: () => Promise<void>;
}

/** Registers, with `node:test`, what every store must pass. `open` is called for each test; `rounds` are those of a race. @see KeyStore */
export function checkStore(name: string, open: () => Promise<StoreUnderTest>, rounds = 200): void {
  const check: StoreTest = (title, body) =>
    void test(title, async () => {
      const { handle, end } = await open();
      const handles: KeyStore[] = [];
      const another = async (): Promise<KeyStore> => {
        const opened = await handle();
        handles.push(opened);
        return opened;
      };
      try {
        await body(await another(), another);
      } finally {
        for (const opened of handles) await opened.close();
        await end?.();
      }
    });

  describe(`a store: ${name}`, () => {
    checkCommits(check, rounds);
    checkLeases(check, rounds);
    checkWatch(check);
  });
}
