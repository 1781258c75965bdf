import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { type KeysetUpdate, type Provider, createProvider, localSigner } from "../../src/index.ts";
import { ecKey, withoutPrivate } from "../support/keys.ts";
import { soak } from "../support/soak.ts";

const kids = ["a", "b", "c", "d", "e", "f"];
const signers = new Map(await Promise.all(kids.map(async (kid) => [kid, await localSigner(ecKey(kid))] as const)));

/** An update by kids; each kid has one key, whichever keyset it is in. */
interface Change {
  readonly signing: readonly string[] | undefined;
  readonly encryption: readonly string[] | undefined;
  /** Something that breaks it, for the last of its keys. */
  readonly flaw: "none" | "no kid" | "no key" | "wrong curve";
}

type Model = Readonly<Required<Record<"signing" | "encryption", readonly string[]>>>;

const change: fc.Arbitrary<Change> = fc.record({
  signing: fc.option(fc.array(fc.constantFrom(...kids), { maxLength: 3 }), { nil: undefined }),
  encryption: fc.option(fc.array(fc.constantFrom(...kids), { maxLength: 2 }), { nil: undefined }),
  flaw: fc.constantFrom("none", "none", "none", "no kid", "no key", "wrong curve"),
});

const flaws = {
  none: [],
  "no kid": [{ signer: signers.get("a") }],
  "no key": [{ kid: "x" }],
  "wrong curve": [{ kid: "x", signer: { publicKey: withoutPrivate(ecKey("x", "P-384")), sign: () => {} } }],
};

function toUpdate({ signing, encryption, flaw }: Change): KeysetUpdate {
  const keyset = signing?.map((kid) => ({ kid, signer: signers.get(kid) }));
  const encryptionKeyset = encryption?.map((kid) => ({ kid, publicKey: withoutPrivate(ecKey(kid)) }));
  return { keyset: keyset && [...keyset, ...flaws[flaw]], encryptionKeyset } as KeysetUpdate;
}

/** What is served after a change: the change if it is valid, else what was served before. */
function next(model: Model, { signing, encryption, flaw }: Change): Model {
  const wanted = { signing: signing ?? model.signing, encryption: encryption ?? model.encryption };
  const all = [...wanted.signing, ...wanted.encryption];
  const broken = signing !== undefined && flaw !== "none";
  return broken || wanted.signing.length === 0 || new Set(all).size < all.length ? model : wanted;
}

async function servedKids({ fetch, jwksUri }: Provider): Promise<Model> {
  const { keys } = (await (await fetch(new Request(jwksUri))).json()) as { keys: { kid: string; use: string }[] };
  const of = (use: string): string[] => keys.filter((key) => key.use === use).map(({ kid }) => kid);
  return { signing: of("sig"), encryption: of("enc") };
}

const start: Model = { signing: ["a"], encryption: [] };
const provide = (): Promise<Provider> =>
  createProvider({ issuer: "https://op.example" }, toUpdate({ ...start, flaw: "none" }));
const changes = fc.array(change, { maxLength: 8 });

test("any sequence of updates leaves the last valid one served, after each of them", async () => {
  await fc.assert(
    fc.asyncProperty(changes, async (sequence) => {
      const provider = await provide();
      let model = start;
      for (const step of sequence) {
        const wanted = next(model, step);
        const accepted = await provider.update(toUpdate(step)).then(
          () => true,
          () => false,
        );
        // An update without effect is accepted as well.
        assert.ok(accepted || wanted === model, "a valid update was refused");
        model = wanted;
        assert.deepEqual(await servedKids(provider), model);
      }
    }),
    { numRuns: soak(100, 20) },
  );
});

test("updates that are made at once end as if made one after the other", async () => {
  await fc.assert(
    fc.asyncProperty(changes, async (sequence) => {
      const provider = await provide();
      await Promise.allSettled(sequence.map((step) => provider.update(toUpdate(step))));
      assert.deepEqual(await servedKids(provider), sequence.reduce(next, start));
    }),
    { numRuns: soak(100, 20) },
  );
});
