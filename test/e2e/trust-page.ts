import { systemClock } from "../../src/base/clock.ts";
import { createRemoteKeySet } from "../../src/verify/relying-party/index.ts";
import type { VerifierSetup } from "../support/verifier-main.ts";
import type { Report, Window } from "../support/verifier.ts";

// A page whose clock can be set: the number of a window is the time in seconds since the first one, and its tokens are kids.
const { origin: control } = (globalThis as unknown as { location: { readonly origin: string } }).location;
const get = async <T>(path: string, headers = {}): Promise<T> =>
  (await fetch(control + path, { headers })).json() as Promise<T>;
const next = (after: number): Promise<Window> => get("/window", { "X-After": String(after) });

const { issuer } = await get<VerifierSetup>("/setup");
const startMs = Date.now();
let nowMs = startMs;
const keys = createRemoteKeySet({ issuer, clock: { ...systemClock, now: () => nowMs } });

const refusals: string[] = [];
for (let window = await next(-1); window.refused === undefined; window = await next(window.number)) {
  nowMs = startMs + window.number * 1000;
  for (const kid of window.tokens) {
    const lookup = keys({ kid, alg: "ES256" });
    refusals.push(
      await lookup.then(
        () => "trusted",
        ({ code }: { code: string }) => code,
      ),
    );
  }
}
const report: Report = { verified: 0, failures: {}, refusals, state: keys.state() };
await fetch(`${control}/report`, { method: "POST", body: JSON.stringify(report) });
