import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { reply, served, unreachable } from "../support/simulated.ts";
import { samplesOf } from "../support/scrape.ts";
import { jwksUri, verifierOf } from "./setup.ts";

const of = (name: string, result = ""): string => `jwksd_remote_set_${name}{set="${jwksUri}"${result}}`;

describe("metrics of a key set", () => {
  test("tell each fetch by its result, and when the set is from", async () => {
    const { keys, ask, clock, origin } = verifierOf();
    const now = (): Record<string, number> => samplesOf(keys.metrics());
    const fetched = (result: string): string => of("fetches_total", `,result="${result}"`);
    assert.equal(now()[of("bytes_total")], 0);
    assert.ok(!(of("requested_timestamp_seconds") in now()), "no set, no time");

    await keys.refresh();
    const bytes = keys.state()?.body.length;
    const requestedAt = clock.now() / 1000;
    await clock.advance(300_000);
    assert.equal(await ask("a"), "a");
    origin.script = unreachable;
    await clock.advance(10_000);
    await assert.rejects(keys.refresh());
    origin.script = reply(500);
    await clock.advance(60_000);
    await assert.rejects(keys.refresh());

    const values = now();
    assert.equal(values[of("bytes_total")], bytes);
    assert.equal(values[of("requested_timestamp_seconds")], requestedAt + 300, "that of the 304");
    assert.deepEqual(
      Object.keys(values).filter((name) => name.includes("fetches")),
      ["200", "304", "ERR_FETCH_FAILED", "ERR_FETCH_STATUS"].map(fetched),
    );
  });

  test("tell refused tokens, and no kid of theirs", async () => {
    const { keys, ask, events, clock, origin } = verifierOf(served(["a"]), { maxWaitMs: 0 });
    await keys.refresh();
    const kids = ["forged-1", "forged-1", "forged-2", "forged-3", "forged-4", "forged-5"];
    const outcomes: string[] = [];
    for (const kid of kids) outcomes.push(await ask(kid));
    origin.script = unreachable;
    await clock.advance(86_400_000);
    for (const kid of kids) outcomes.push(await ask(kid));
    const values = samplesOf(keys.metrics());
    const count = (code: string): number => outcomes.filter((outcome) => outcome === code).length;
    assert.ok(count("ERR_KEYS_LATER") > 0);
    const told = {
      [of("unknown_kids_total")]: count("ERR_TOKEN_KID_UNKNOWN"),
      [of("exhausted_total")]: count("ERR_KEYS_LATER"),
    };
    for (const [name, value] of Object.entries(told)) assert.equal(values[name], value);
    assert.ok(!JSON.stringify([keys.metrics(), events]).includes("forged"));
  });

  test("a state that cannot be used is no fetch", async () => {
    const { keys, ask } = verifierOf(served(["a"]), { state: {} as never });
    assert.equal(await ask("a"), "a");
    const results = Object.keys(samplesOf(keys.metrics())).filter((name) => name.includes("fetches"));
    assert.deepEqual(results, [of("fetches_total", ',result="200"')]);
  });
});
