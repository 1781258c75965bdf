import assert from "node:assert/strict";
import fc from "fast-check";
import { ConfigError, RotationError } from "../../src/base/errors.ts";
import { type KeyChange, type View, advance } from "../../src/rotation/rules/advance.ts";
import { type Command, announce, applyCommand } from "../../src/rotation/rules/commands.ts";
import { type KeyRecord, type KeyUse, keyUses } from "../../src/rotation/rules/key-records.ts";
import { type RotationPolicy, rotationPolicy } from "../../src/rotation/rules/policy.ts";
import { recordBounds } from "../../src/rotation/rules/waits.ts";
import { day, frozen, hour, newKey, second, start, year } from "./key-records.ts";

/** Pauses of up to a year; `anyhow` includes changes of the clock. */
export const forwards = [second, hour, 2 * hour, 5 * hour, day, day + hour, 45 * day, year];
export const anyhow = [...forwards, -hour, -day, -year, 3 * year];

/** Policies, of which the second one has the shortest allowed durations. */
export const policies = [
  rotationPolicy(),
  rotationPolicy({ rotateEveryDays: 2, announceForSeconds: 18_100, cacheSlackSeconds: 7_000 }),
  rotationPolicy({ rotateEveryDays: 45, maxTokenLifetimeSeconds: 30 * 86_400, maxStaleSeconds: 600 }),
];

/** A policy whose `maxStaleSeconds` is longer than another policy's propagation period. */
const longStale = rotationPolicy({ maxStaleSeconds: 40_000 });

export type Action =
  | { readonly type: "wait"; readonly ms: number }
  | { readonly type: "advance" }
  | { readonly type: "policy"; readonly policy: RotationPolicy }
  /** `which` is the index of a key for this use. */
  | {
      readonly type: "activate" | "retire" | "remove" | "revoke" | "import";
      readonly use: KeyUse;
      readonly which: number;
      readonly force: boolean;
    }
  | { readonly type: "rotate"; readonly use: KeyUse; readonly now: boolean }
  | { readonly type: "rollBack"; readonly use: "sig"; readonly withdraw: boolean }
  | { readonly type: "decommission"; readonly now: boolean };

export interface History {
  readonly policy: RotationPolicy;
  readonly actions: readonly Action[];
}

export const newPolicy: fc.Arbitrary<Action> = fc.record({
  type: fc.constant<"policy">("policy"),
  policy: fc.constantFrom(...policies, longStale),
});

export const decommission: fc.Arbitrary<Action> = fc.record({
  type: fc.constant<"decommission">("decommission"),
  now: fc.boolean(),
});

/** Generates histories of commands, steps and pauses. */
export function histories(waits: readonly number[], ...more: readonly fc.Arbitrary<Action>[]): fc.Arbitrary<History> {
  const use = fc.constantFrom(...keyUses);
  const wait = fc.record({ type: fc.constant<"wait">("wait"), ms: fc.constantFrom(...waits) });
  const step = fc.record({
    type: fc.constantFrom("activate", "retire", "remove", "revoke", "import"),
    use,
    which: fc.nat(5),
    force: fc.boolean(),
  });
  const rotate = fc.record({ type: fc.constant<"rotate">("rotate"), use, now: fc.boolean() });
  const rollBack = fc.record({
    type: fc.constant<"rollBack">("rollBack"),
    use: fc.constant<"sig">("sig"),
    withdraw: fc.boolean(),
  });
  const action = fc.oneof<fc.MaybeWeightedArbitrary<Action>[]>(
    { weight: 4, arbitrary: wait },
    { weight: 4, arbitrary: fc.constant<Action>({ type: "advance" }) },
    { weight: 3, arbitrary: step },
    { weight: 2, arbitrary: rotate },
    { weight: 2, arbitrary: rollBack },
    ...more,
  );
  return fc.record({
    policy: fc.constantFrom(...policies),
    actions: fc.array(action, { minLength: 3, maxLength: 40, size: "max" }),
  });
}

/** Creates a key that is named by use and number, so that its name does not depend on the other use. */
const nextKey = (records: readonly KeyRecord[], use: KeyUse) =>
  newKey(`${use} ${records.filter((record) => record.use === use).length + 1}`, use);

/** Does everything that a process does at a moment: takes the steps that are due and reads again, until none is due. */
export function takeDueSteps(
  before: readonly KeyRecord[],
  policy: RotationPolicy,
  now: number,
  view: View = {},
): KeyChange {
  let all: KeyChange = { records: before, events: [] };
  for (;;) {
    const { due, records, events } = advance(frozen(all.records), policy, now, view);
    const taken = { records, events: [...all.events, ...events] };
    const made = due.reduce<KeyChange>(
      (change, use) => announce(change, nextKey(change.records, use), now, "it is time"),
      taken,
    );
    const noted = recordBounds(made.records, policy);
    if (noted === all.records) return all;
    all = { records: noted, events: made.events };
  }
}

export function commandOf(
  action: Exclude<Action, { type: "wait" | "advance" }>,
  records: readonly KeyRecord[],
): Command {
  if (action.type === "policy" || action.type === "rollBack" || action.type === "decommission") return action;
  const { use } = action;
  const key = nextKey(records, use);
  if (action.type === "rotate") return { type: "rotate", use, now: action.now, key };
  if (action.type === "import") return { type: "import", key, state: "retiring" };
  const ofUse = records.filter((record) => record.use === use);
  const kid = ofUse[action.which % Math.max(ofUse.length, 1)]?.kid ?? "none";
  if (action.type === "revoke") return { type: "revoke", kid, replacement: key };
  return { type: action.type, kid, force: action.force };
}

export interface Outcome {
  readonly records: readonly KeyRecord[];
  readonly policy: RotationPolicy;
  readonly now: number;
}

/** Replays a history. @param onAction is called with the records after each action */
export function replay(
  { policy: first, actions }: History,
  onAction: (outcome: Outcome, action: Action) => void = () => {},
): Outcome {
  let [now, policy] = [start, first];
  let { records } = takeDueSteps([], policy, now);
  for (const action of actions) {
    if (action.type === "wait") now += action.ms;
    else if (action.type === "advance") ({ records } = takeDueSteps(records, policy, now));
    else {
      try {
        const change = applyCommand(frozen(records), commandOf(action, records), { policy, now });
        ({ policy = policy } = change);
        records = recordBounds(change.records, policy);
      } catch (error) {
        assert.ok(error instanceof RotationError || error instanceof ConfigError, String(error));
      }
    }
    onAction({ records, policy, now }, action);
  }
  return { records: frozen(records), policy, now };
}
