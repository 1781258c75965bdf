import { createInterface } from "node:readline";
import { realMs, setClock } from "./clock.ts";
import { type Configured, type Verify, drivers } from "./drivers.ts";

// An npm verifier in its own process: a question per line in, an answer out.

const driver = drivers.find(({ name }) => name === process.argv[2]);
if (driver === undefined) throw new Error("there is no such verifier");

// A request in the background ends before the clock is set again.
const underWay = new Set<Promise<unknown>>();
const realFetch = globalThis.fetch;
globalThis.fetch = (...args) => {
  const response = realFetch(...args);
  const ended = response.then((each) => each.clone().arrayBuffer()).catch(() => {});
  underWay.add(ended);
  void ended.then(() => underWay.delete(ended));
  return response;
};

let verify: Verify | undefined;
for await (const line of createInterface({ input: process.stdin })) {
  const { at, token, ...configured } = JSON.parse(line) as Configured & { at: number; token: string };
  setClock(at);
  const began = realMs();
  const answer = await (async () => {
    try {
      verify ??= await driver.make(configured);
      await verify(token);
      return { verified: true };
    } catch (error) {
      return { verified: false, error: String(error) };
    }
  })();
  const ms = realMs() - began;
  await Promise.allSettled(underWay);
  console.log(JSON.stringify({ ...answer, ms }));
}
