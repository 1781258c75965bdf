import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type Provider, type ProviderEvent, createProvider, localSigner } from "../../src/index.ts";
import { World, issuer } from "../manager/world.ts";
import { day, hour } from "../rotation/key-records.ts";
import { ecKey } from "../support/keys.ts";
import { samplesOf } from "../support/scrape.ts";
import { compact, noSignature, verdict } from "../token/compact.ts";

const entry = async (kid: string) => ({ kid, signer: await localSigner(ecKey(kid)) });
const named = (kid: string): string => compact({ alg: "ES256", kid }, {}, noSignature);
const check = ({ verify }: Provider, token: string): Promise<string> => verdict(verify(token, { audience: "api" }));

/** What was told since the last time, and the counts. */
function listening() {
  const events: ProviderEvent[] = [];
  return {
    onEvent: (event: ProviderEvent): void => void events.push(event),
    told: () => events.splice(0).filter(({ type }) => type === "retired-kid-presented"),
  };
}
const counts = (provider: Provider): Record<string, number> =>
  Object.fromEntries(
    Object.entries(samplesOf(provider.metrics())).filter(([name]) =>
      name.startsWith("jwksd_retired_kids_presented_total{"),
    ),
  );

describe("a token with the kid of a key that is no longer published is refused as any other, and told", () => {
  test("without a manager: of keys that an update took out", async () => {
    const { onEvent, told } = listening();
    const provider = await createProvider({ issuer, keyset: [await entry("a"), await entry("b")], onEvent });
    await provider.update({ keyset: [await entry("b"), await entry("c")] });
    for (const kid of ["a", "b", "c", "never there", "__proto__"]) await check(provider, named(kid));
    assert.deepEqual(told(), [{ type: "retired-kid-presented", kid: "a", end: "removed" }]);
    assert.equal(await check(provider, named("a")), "ERR_TOKEN_KID_UNKNOWN");
    assert.deepEqual(counts(provider), { 'jwksd_retired_kids_presented_total{end="removed"}': 2 });
    told();
    await provider.update({ keyset: [await entry("a")] });
    await check(provider, named("a"));
    await check(provider, named("c"));
    assert.deepEqual(told(), [{ type: "retired-kid-presented", kid: "c", end: "removed" }], "a key that is back");
  });

  test("with a manager: of each key that it has ever had, after a restart too", async () => {
    const world = new World();
    const replica = await world.start();
    const [removed = ""] = replica.manager.records.map(({ kid }) => kid);
    await world.passTo(4 * day + 14 * hour);
    const revoked = replica.manager.records.find(({ state }) => state === "active")?.kid ?? "";
    const replacement = await replica.manager.makeKey("sig");
    await world.run(replica, { type: "revoke", kid: revoked, replacement });
    await world.stop(replica);

    const { manager } = await world.start();
    const { onEvent, told } = listening();
    const provider = await createProvider({ keys: manager }, { clock: world.clock, onEvent });
    const live = manager.records.filter(({ state }) => state === "active").map(({ kid }) => kid);
    for (const kid of [removed, revoked, ...live, "never there"]) await check(provider, named(kid));
    assert.deepEqual(told(), [
      { type: "retired-kid-presented", kid: removed, end: "removed" },
      { type: "retired-kid-presented", kid: revoked, end: "revoked" },
    ]);
    assert.deepEqual(counts(provider), {
      'jwksd_retired_kids_presented_total{end="removed"}': 1,
      'jwksd_retired_kids_presented_total{end="revoked"}': 1,
    });
  });

  test("not where the header is refused before: no alg of the provider, no kid", async () => {
    const { onEvent, told } = listening();
    const provider = await createProvider({ issuer, keyset: [await entry("a")], onEvent });
    await provider.update({ keyset: [await entry("b")] });
    for (const header of [{ alg: "none", kid: "a" }, { alg: "HS256", kid: "a" }, { alg: "ES256" }])
      await check(provider, compact(header, {}, noSignature));
    assert.deepEqual(told(), []);
  });

  test("kids that were taken out are remembered within a bound, the last ones", async () => {
    const { onEvent, told } = listening();
    const provider = await createProvider({ issuer, keyset: [await entry("a")], onEvent });
    for (let round = 0; round < 1_001; round += 1)
      await provider.update({ keyset: [{ kid: `kid ${round}`, signer: (await entry("a")).signer }] });
    for (const kid of ["a", "kid 0", "kid 999"]) await check(provider, named(kid));
    assert.deepEqual(
      told().map((event) => "kid" in event && event.kid),
      ["kid 0", "kid 999"],
    );
  });
});
