import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { behaviorOf } from "../../lab/behavior.ts";
import { readData } from "../../lab/data.ts";
import { fromDebian, missingOfDebian } from "../../lab/debian.ts";
import { pagesOf } from "../../lab/pages.ts";
import { type Place, openPlace } from "../../lab/run.ts";
import { type Verifier, fromNpm } from "../../lab/verifiers.ts";
import { behaviors, measuredOn } from "../../src/doctor/verifiers/caching-behavior.ts";
import { skipped } from "../support/parts.ts";
import { isSoak } from "../support/soak.ts";

const rerun = "run: node lab/main.ts";
const data = readData();
const measured = Object.entries(data.verifiers);

describe("verifiers do what lab/data.json says", () => {
  let place: Place;
  before(async () => void (place = await openPlace()));
  after(() => place.close());

  const compare = async (verifier: Verifier, only: readonly string[]): Promise<void> => {
    const told = data.verifiers[verifier.name];
    const poll = behaviors.find(({ name }) => name === verifier.name)?.pollSeconds;
    assert.ok(told !== undefined && poll !== undefined, `${verifier.name} is missing; ${rerun}`);
    const found = await place.measure(verifier, only, poll);
    const expected = Object.fromEntries(only.map((name) => [name, told.histories[name]]));
    assert.deepEqual(found, { version: told.version, histories: expected }, `${verifier.name}; ${rerun}`);
  };

  test("when npm test runs, one verifier stands in for the others", () =>
    compare(fromNpm(place.certificate)[0] as Verifier, ["away-1m"]));

  if (isSoak) {
    const sample = ["rotation-0", "away-1m"];
    test("the verifiers from npm", async () => {
      for (const verifier of fromNpm(place.certificate)) await compare(verifier, sample);
    });
    const missing = missingOfDebian();
    const skip =
      missing.length > 0 && !process.env["CI"]
        ? skipped(`${missing.join(", ")} not installed; install with: sudo scripts/install-test-services`)
        : false;
    test("the verifiers from Debian", { skip }, async () => {
      for (const verifier of fromDebian(place.certificate, place.folder)) await compare(verifier, sample);
    });
  }
});

test("the npm verifiers are pinned to the measured versions", () => {
  for (const { name, version } of fromNpm(""))
    assert.equal(version, data.verifiers[name]?.version, `${name}; ${rerun}`);
});

test("the doctor's file and the pages are generated from the data", () => {
  assert.equal(measuredOn, data.date);
  assert.deepEqual(
    behaviors,
    measured.map(([name, each]) => behaviorOf(name, each)),
  );
  for (const [file, text] of Object.entries(pagesOf(data))) {
    const path = new URL(`../../${file}`, import.meta.url);
    assert.equal(existsSync(path) && readFileSync(path, "utf8"), text, `${file}; run: node lab/main.ts --write`);
  }
});

/** The verifiers that refused a token signed with the new key. */
const refusedIn = (history: string): string[] =>
  measured.filter(([, { histories }]) => histories[history]?.outcomes["b"]?.refused !== 0).map(([name]) => name);

test("no verifier rejects a key that has been announced for as long as the planner requires", () => {
  for (const [name, { histories }] of measured) {
    for (const history of ["rotation-2h", "rotation-1d"]) {
      const outcomes = histories[history]?.outcomes ?? {};
      assert.deepEqual(
        Object.values(outcomes).map(({ refused }) => refused),
        [0, 0],
        `${name}, ${history}`,
      );
    }
  }
});

test("a key that signs too early is rejected by verifiers that do not refetch keys", () => {
  assert.deepEqual(refusedIn("rotation-5m"), ["go-oidc"]);
  assert.deepEqual(refusedIn("rotation-0"), [
    "jose",
    "openid-client",
    "oauth4webapi",
    "express-oauth2-jwt-bearer",
    "go-oidc",
    "ruby-jwt",
  ]);
});
