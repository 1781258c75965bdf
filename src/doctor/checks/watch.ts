import { type Note, note } from "../finding.ts";
import type { SeenToken } from "../observations.ts";
import type { State } from "../set-states.ts";
import { counted, quoted } from "../value-text.ts";

type WithKeys = State & { readonly keys: NonNullable<State["keys"]> };

/** If this many keys are added and none is removed, the check assumes that keys are never removed. */
const manyAdditions = 3;
const yearMs = 365 * 24 * 3600 * 1000;

/** Compares several states with each other, and tokens with the states. */
export function checkWatch(states: readonly State[], tokens: readonly SeenToken[]): Note[] {
  const sets = states.filter((state): state is WithKeys => state.keys !== undefined);
  const failed = states.filter(({ problem }) => problem !== undefined);
  const notes = [...checkOutages(failed, sets.length), ...checkEtags(sets), ...checkReuse(sets)];
  const returns = countReturns(sets);
  if (returns > 0) {
    const kids = new Set(sets.flatMap(({ keys }) => [...keys.keys()]));
    const changing = [...kids].filter((kid) => !sets.every(({ keys }) => keys.has(kid)));
    const which =
      changing.length === 0 ? "" : `; only some responses contain kid ${changing.slice(0, 5).map(quoted).join(", ")}`;
    const seen = `an earlier set came back ${counted(returns, "time")}${which}`;
    // If nodes disagree, the times at which keys were added and removed are unknown.
    return [...notes, note("WATCH_NODES_DISAGREE", seen)];
  }
  return [
    ...notes,
    ...checkWithdrawals(sets, tokens),
    ...checkAnnouncements(sets, tokens),
    ...checkPace(sets),
    ...checkGrowth(sets),
    ...checkRotationAtAll(sets),
  ];
}

function checkOutages(failed: readonly State[], successes: number): Note[] {
  if (failed.length === 0 || successes === 0) return [];
  const problems = [...new Set(failed.map(({ problem }) => problem ?? ""))].slice(0, 3).join(", ");
  return [note("WATCH_UNREACHABLE", problems)];
}

function checkEtags(states: readonly WithKeys[]): Note[] {
  for (const [before, after] of pairs(states)) {
    if (before.at === after.at || before.content !== after.content) continue;
    if (before.etag !== undefined && after.etag !== undefined && before.etag !== after.etag) {
      return [note("HTTP_ETAG_CHANGES", `${quoted(before.etag)}, then ${quoted(after.etag)}`)];
    }
  }
  return [];
}

function checkReuse(states: readonly WithKeys[]): Note[] {
  const first = new Map<string, string | undefined>();
  const reused = new Set<string>();
  for (const { keys } of states) {
    for (const [kid, thumbprint] of keys) {
      if (first.has(kid) && first.get(kid) !== thumbprint) reused.add(kid);
      else first.set(kid, thumbprint);
    }
  }
  return [...reused].map((kid) => note("WATCH_KID_REUSED", `kid ${quoted(kid)}`));
}

/** Counts how often an earlier set reappeared. */
function countReturns(states: readonly WithKeys[]): number {
  const past = new Set<string>();
  let returns = 0;
  for (const [before, after] of pairs(states)) {
    if (before.identity === after.identity) continue;
    past.add(before.identity);
    if (past.has(after.identity)) returns += 1;
  }
  return returns;
}

function checkWithdrawals(states: readonly WithKeys[], tokens: readonly SeenToken[]): Note[] {
  const notes = new Map<string, Note>();
  for (const [before, after] of pairs(states)) {
    for (const kid of before.keys.keys()) {
      if (after.keys.has(kid)) continue;
      const lasts = Math.max(...tokens.filter((token) => token.kid === kid).map(({ expiresAt = 0 }) => expiresAt));
      if (lasts <= after.at) continue;
      const seconds = Math.round((lasts - after.at) / 1000);
      notes.set(
        kid,
        note("WATCH_KEY_WITHDRAWN", `kid ${quoted(kid)}: one of its tokens was still valid for ${seconds} s`),
      );
    }
  }
  return [...notes.values()];
}

function checkAnnouncements(states: readonly WithKeys[], tokens: readonly SeenToken[]): Note[] {
  const notes = new Map<string, Note>();
  for (const { kid, at, issuedAt = at } of tokens) {
    const appearance = states.findIndex(({ keys }) => keys.has(kid));
    const without = (appearance === -1 ? states : states.slice(0, appearance)).filter((state) => state.at <= at);
    const last = without.at(-1);
    // A key in the first state may have been published long before that.
    if (last === undefined) continue;
    const served = Math.max(...without.map(({ servedSeconds }) => servedSeconds));
    const publishedFor = (issuedAt - last.at) / 1000;
    if (appearance === -1 && states.at(-1) === last && issuedAt > last.at) continue;
    if (publishedFor >= served) continue;
    const since =
      publishedFor <= 0 ? "before it was published" : `at most ${Math.round(publishedFor)} s after it was published`;
    notes.set(
      kid,
      note(
        "WATCH_SIGNS_UNANNOUNCED",
        `kid ${quoted(kid)} signed a token ${since}, but caches may keep sets for ${served} s`,
      ),
    );
  }
  return [...notes.values()];
}

function checkPace(states: readonly WithKeys[]): Note[] {
  for (const [index, [before, after]] of pairs(states).entries()) {
    const added = [...after.keys.keys()].filter((kid) => !before.keys.has(kid));
    if (added.length === 0) continue;
    const old = [...before.keys.keys()];
    const end = states.slice(index + 1).find(({ keys }) => old.some((kid) => !keys.has(kid)));
    if (end === undefined) continue;
    const seconds = (end.at - before.at) / 1000;
    if (seconds >= before.servedSeconds) continue;
    const seen = `the rotation took at most ${Math.round(seconds)} s, but caches may keep sets for ${before.servedSeconds} s`;
    return [note("WATCH_LIFETIME_TOO_LONG", seen)];
  }
  return [];
}

function checkGrowth(states: readonly WithKeys[]): Note[] {
  let additions = 0;
  for (const [before, after] of pairs(states)) {
    if ([...before.keys.keys()].some((kid) => !after.keys.has(kid))) return [];
    if (after.keys.size > before.keys.size) additions += 1;
  }
  if (additions < manyAdditions) return [];
  return [note("WATCH_ONLY_GROWS", `from ${states[0]?.keys.size} to ${counted(states.at(-1)?.keys.size ?? 0, "key")}`)];
}

function checkRotationAtAll(states: readonly WithKeys[]): Note[] {
  const [first, last] = [states[0], states.at(-1)];
  if (first === undefined || last === undefined || last.at - first.at <= yearMs) return [];
  const kids = new Set(states.flatMap(({ keys }) => [...keys.keys()]));
  return kids.size === 1
    ? [note("JWKS_ONE_OLD_KEY", `kid ${quoted([...kids][0])} was the only key throughout more than a year of watching`)]
    : [];
}

const pairs = (states: readonly WithKeys[]): (readonly [before: WithKeys, after: WithKeys])[] =>
  states.flatMap((after, index) => {
    const before = states[index - 1];
    return before === undefined ? [] : [[before, after] as const];
  });
