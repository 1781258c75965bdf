import type { DurableObjectState } from "../../src/rotation/store/databases/durable-object.ts";

/** Lets a test in workerd set a database's clock and hold its answers. */
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
    /** Responds to a request from the test. Holds other requests while the test says so. */
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
