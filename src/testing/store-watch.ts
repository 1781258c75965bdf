import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { isDeepStrictEqual } from "node:util";
import type { KeyStore } from "../rotation/store/store.ts";
import { type StoreTest, leasesOf, longMs, refused, whole } from "./records.ts";

/** Watching, aborting and closing. */
export function checkWatch(test: StoreTest): void {
  for (const writer of ["the same handle", "another handle"]) {
    test(`watch calls back within a second after a commit of ${writer}`, async (store, another) => {
      const handle = writer === "the same handle" ? store : await another();
      const watched = watching(store);
      for (let revision = 0; revision < 3; revision += 1) {
        const change = watched.next();
        await handle.commit(revision, [], []);
        await change;
        // What the callback announces can be loaded.
        assert.equal((await store.load()).revision, revision + 1);
      }
      watched.stop();
    });
  }

  test("watch calls back everyone, until the signal aborts", async (store) => {
    const [first, second] = [watching(store), watching(store)];
    const both = [first.next(), second.next()];
    await store.commit(0, [], []);
    await Promise.all(both);
    first.stop();
    const { calls } = first;
    const change = second.next();
    await store.commit(1, [], []);
    first.stop();
    await change;
    assert.equal(first.calls, calls);
    second.stop();
  });

  test("an abort while a commit is under way: nobody is called back any more", async (store) => {
    const [gone, left] = [watching(store), watching(store)];
    const change = left.next();
    const commit = store.commit(0, [], []);
    gone.stop();
    await Promise.all([commit, change]);
    assert.equal(gone.calls, 0);
    left.stop();
  });

  test("watch with an aborted signal never calls back", async (store) => {
    store.watch(() => assert.fail("called back"), { signal: AbortSignal.abort() });
    const watched = watching(store);
    const change = watched.next();
    await store.commit(0, [], []);
    await change;
    watched.stop();
  });

  test("an aborted signal stops every method before it does anything", async (store) => {
    const reason = new Error("stopped");
    const options = { signal: AbortSignal.abort(reason) };
    const attempts = [
      store.load(options),
      store.commit(0, [whole], [], options),
      store.events(options),
      store.join({ id: "a", name: "a" }, longMs, options),
      store.renew({ id: "a", publishes: 0, signsWith: [] }, longMs, options),
      store.leave("a", options),
    ];
    const outcomes = await Promise.allSettled(attempts);
    assert.ok(outcomes.every((outcome) => isDeepStrictEqual(outcome, { status: "rejected", reason })));
    assert.deepEqual([(await store.load()).revision, await leasesOf(store)], [0, []]);
  });

  test("a closed handle can be closed again, refuses everything else, and calls nobody back", async (store, another) => {
    const closed = await another();
    await closed.commit(0, [], []);
    closed.watch(() => assert.fail("called back"), { signal: new AbortController().signal });
    await closed.close();
    await closed.close();
    for (const attempt of [
      closed.load(),
      closed.commit(1, [], []),
      closed.events(),
      closed.join({ id: "a", name: "a" }, longMs),
      closed.renew({ id: "a", publishes: 0, signsWith: [] }, longMs),
      closed.leave("a"),
    ]) {
      await refused(attempt, "ERR_STORE_UNAVAILABLE", true);
    }
    closed.watch(() => assert.fail("called back"), { signal: new AbortController().signal });
  });
}

/** Counts the calls, and waits for the next one, with some room for a busy machine. */
function watching(store: KeyStore): { readonly calls: number; next(): Promise<unknown>; stop(): void } {
  const controller = new AbortController();
  const changes = new EventEmitter();
  let calls = 0;
  store.watch(
    () => {
      calls += 1;
      changes.emit("change");
    },
    { signal: controller.signal },
  );
  return {
    get calls() {
      return calls;
    },
    next() {
      const late = new AbortController();
      // Also keeps the process alive: a store that is watched need not.
      const timer = setTimeout(() => late.abort(new Error("nobody was called back in time")), 5_000);
      return once(changes, "change", { signal: late.signal }).finally(() => clearTimeout(timer));
    },
    stop: () => controller.abort(),
  };
}
