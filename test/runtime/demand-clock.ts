import type { DurableObjectState } from "../../src/rotation/store/databases/durable-object.ts";

/** What a database of a test in workerd has beside its own: the time of the test, and answers that are held back. */
export function createTestControl() {
  let aheadMs = 0;
  let waiting = 0;
  let held: PromiseWithResolvers<void> | undefined;
  return {
    storage: (storage: DurableObjectState["storage"]): DurableObjectState["storage"] => ({
      sql: {
        exec: (text, ...values) =>
          storage.sql.exec(text.replace("unixepoch('subsec')", `(unixepoch('subsec') + ${aheadMs / 1000})`), ...values),
      },
      transactionSync: (action) => storage.transactionSync(action),
    }),
    /** Answers a request of the test; holds back those of others, while they are to be. */
    async control(request: Request): Promise<Response | undefined> {
      if (request.method !== "PUT") {
        waiting += 1;
        await held?.promise;
        return undefined;
      }
      const { ahead = aheadMs, hold } = (await request.json()) as { ahead?: number; hold?: boolean };
      aheadMs = ahead;
      if (hold === true) {
        waiting = 0;
        held = Promise.withResolvers();
      }
      if (hold === false) {
        held?.resolve();
        held = undefined;
      }
      return Response.json({ waiting });
    },
  };
}
