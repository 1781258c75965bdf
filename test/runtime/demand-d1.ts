import type { DurableObjectState } from "../../src/rotation/store/databases/durable-object.ts";
import { Database as PlainDatabase } from "../contract/store-d1.ts";
import { createTestControl } from "./demand-clock.ts";

export { default } from "../contract/store-d1.ts";

export class Database extends PlainDatabase {
  readonly #test: ReturnType<typeof createTestControl>;

  constructor({ storage }: DurableObjectState) {
    const test = createTestControl();
    super({ storage: test.storage(storage) });
    this.#test = test;
  }

  override async fetch(request: Request): Promise<Response> {
    return (await this.#test.control(request)) ?? super.fetch(request);
  }
}
