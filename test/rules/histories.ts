import assert from "node:assert/strict";
import fc from "fast-check";
import { ConfigError, StateError } from "../../src/base/errors.ts";
import { type Change, type View, advance } from "../../src/rotation/rules/advance.ts";
import { type Command, announce, applyCommand } from "../../src/rotation/rules/commands.ts";
import { type RotationPolicy, rotationPolicy } from "../../src/rotation/rules/policy.ts";
import { type KeyRecord, type KeyUse, keyUses } from "../../src/rotation/rules/records.ts";
import { recordBounds } from "../../src/rotation/rules/waits.ts";
import { day, frozen, hour, newKey, second, start, year } from "./key-records.ts";

/** Years that pass forwards, and a clock that is set as well. */
export const forwards = [second, hour, 2 * hour, 5 * hour, day, day + hour, 45 * day, year];
export const anyhow = [...forwards, -hour, -day, -year, 3 * year];

/** The second one is as short as it may be. */
export const policies = [
  rotationPolicy(),
  rotationPolicy({ rotateEveryDays: 2, announceForSeconds: 18_100, cacheSlackSeconds: 7_000 }),
  rotationPolicy({ rotateEveryDays: 45, maxTokenLifetimeSeconds: 30 * 86_400, maxStaleSeconds: 600 }),
];

/** For longer than the short announcement of another policy. */
const longStale = rotationPolicy({ maxStaleSeconds: 40_000 });

export type Deed =
  | { readonly type: "wait"; readonly ms: number }
  | { readonly type: "advance" }
  | { readonly type: "policy"; readonly policy: RotationPolicy }
  /** `which` counts the keys of the use. */
  | {
      readonly type: "activate" | "retire" | "remove" | "revoke" | "import";
      readonly use: KeyUse;
      readonly which: number;
      readonly force: boolean;
    }
  | { readonly type: "rotate"; readonly use: KeyUse; readonly now: boolean };

export interface History {
  readonly policy: RotationPolicy;
  readonly deeds: readonly Deed[];
}

export const newPolicy: fc.Arbitrary<Deed> = fc.record({
  type: fc.constant<"policy">("policy"),
  policy: fc.constantFrom(...policies, longStale),
});

/** What a restless operator does, and what passes between. */
export function histories(waits: readonly number[], ...more: readonly fc.Arbitrary<Deed>[]): fc.Arbitrary<History> {
  const use = fc.constantFrom(...keyUses);
  const wait = fc.record({ type: fc.constant<"wait">("wait"), ms: fc.constantFrom(...waits) });
  const step = fc.record({
    type: fc.constantFrom("activate", "retire", "remove", "revoke", "import"),
    use,
    which: fc.nat(5),
    force: fc.boolean(),
  });
  const rotate = fc.record({ type: fc.constant<"rotate">("rotate"), use, now: fc.boolean() });
  const deed = fc.oneof<fc.MaybeWeightedArbitrary<Deed>[]>(
    { weight: 4, arbitrary: wait },
    { weight: 4, arbitrary: fc.constant<Deed>({ type: "advance" }) },
    { weight: 3, arbitrary: step },
    { weight: 2, arbitrary: rotate },
    ...more,
  );
  return fc.record({
    policy: fc.constantFrom(...policies),
    deeds: fc.array(deed, { minLength: 3, maxLength: 40, size: "max" }),
  });
}

/** A name by use and number, so that it does not matter to the one use what the other one does. */
const next = (records: readonly KeyRecord[], use: KeyUse) =>
  newKey(`${use} ${records.filter((record) => record.use === use).length + 1}`, use);

/** All that a process does at a moment: it takes what is due and reads again, until nothing is. */
export function turn(before: readonly KeyRecord[], policy: RotationPolicy, now: number, view: View = {}): Change {
  let all: Change = { records: before, events: [] };
  for (;;) {
    const { due, records, events } = advance(frozen(all.records), policy, now, view);
    const taken = { records, events: [...all.events, ...events] };
    const made = due.reduce<Change>(
      (change, use) => announce(change, next(change.records, use), now, "it is time"),
      taken,
    );
    const noted = recordBounds(made.records, policy);
    if (noted === all.records) return all;
    all = { records: noted, events: made.events };
  }
}

export function commandOf(deed: Exclude<Deed, { type: "wait" | "advance" }>, records: readonly KeyRecord[]): Command {
  if (deed.type === "policy") return deed;
  const { use } = deed;
  const key = next(records, use);
  if (deed.type === "rotate") return { type: "rotate", use, now: deed.now, key };
  if (deed.type === "import") return { type: "import", key, state: "retiring" };
  const ofUse = records.filter((record) => record.use === use);
  const kid = ofUse[deed.which % Math.max(ofUse.length, 1)]?.kid ?? "none";
  if (deed.type === "revoke") return { type: "revoke", kid, replacement: key };
  return { type: deed.type, kid, force: deed.force };
}

export interface Outcome {
  readonly records: readonly KeyRecord[];
  readonly policy: RotationPolicy;
  readonly now: number;
}

/** @param look is shown what is there after each deed */
export function live(
  { policy: first, deeds }: History,
  look: (outcome: Outcome, deed: Deed) => void = () => {},
): Outcome {
  let [now, policy] = [start, first];
  let { records } = turn([], policy, now);
  for (const deed of deeds) {
    if (deed.type === "wait") now += deed.ms;
    else if (deed.type === "advance") ({ records } = turn(records, policy, now));
    else {
      try {
        const change = applyCommand(frozen(records), commandOf(deed, records), { policy, now });
        ({ policy = policy } = change);
        records = recordBounds(change.records, policy);
      } catch (error) {
        assert.ok(error instanceof StateError || error instanceof ConfigError, String(error));
      }
    }
    look({ records, policy, now }, deed);
  }
  return { records: frozen(records), policy, now };
}
