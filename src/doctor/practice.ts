import { durationText } from "../base/format.ts";
import { isForSignatures } from "./algorithms.ts";
import { type Lifetime, lifetimeOf } from "./cache-control.ts";
import { isObject, readJson } from "./document.ts";
import { field, setResponse } from "./exchange.ts";
import { counted, quoted } from "./format.ts";
import type { Observations, SeenToken } from "./observations.ts";
import { type State, sequence } from "./sequence.ts";
import { removedKeyText } from "./verifiers/habits.ts";

/** What the looks and tokens say about how the issuer rotates its keys, in sentences. May quote the issuer: escape it before you print it. */
export async function practice(observations: Observations): Promise<readonly string[]> {
  const states = (await sequence(observations)).filter(({ keys }) => keys !== undefined);
  const set = setResponse(observations);
  // A file says nothing of an issuer.
  if (set?.status === undefined || states.length === 0) return [];
  const { tokens = [], looks = [] } = observations;
  const kept = lifetimeOf(set);
  const caching = lifetime(kept, field(set, "cache-control"));
  const together = states.filter(({ at }) => at === states[0]?.at);
  const answers = `${counted(together.length, "answer")} of one look had`;
  const different = new Set(together.map(({ identity }) => identity)).size;
  // Nobody knows then which keys there are, and when they came and went.
  if (different > 1) return [`${answers} ${different} different sets of keys: servers disagree.`, caching];
  return [
    ...signingKeys(set.body),
    caching,
    removedKeyText(kept.freshSeconds ?? 0),
    ...(together.length < 2 ? [] : [`${answers} the same keys.`]),
    ...(looks.length === 0 ? [] : [movement(states)]),
    ...signers(states, tokens),
  ];
}

function signingKeys(body: Uint8Array | undefined): string[] {
  const { value } = readJson(body ?? new Uint8Array(), "");
  const keys = isObject(value) && Array.isArray(value["keys"]) ? (value["keys"] as unknown[]) : [];
  const count = keys.filter((key) => isObject(key) && isForSignatures(key)).length;
  if (count === 0) return [];
  if (count === 1) return ["One signing key is published, so no next key is announced."];
  return [`${counted(count, "signing key")} are published: one signs, others are announced or retiring.`];
}

function lifetime({ noStore, servedSeconds }: Lifetime, control: string | undefined): string {
  if (noStore) return "Caches may not keep the set, so a new key may sign as soon as every server publishes it.";
  if (servedSeconds === undefined) return "No lifetime is stated: each verifier keeps the set for as long as it likes.";
  const by = control === undefined ? "Expires" : quoted(control);
  return `Caches may keep the set for ${durationText(servedSeconds * 1000)} (${by}): a new key has to be published for longer than that before it signs.`;
}

function movement(states: readonly State[]): string {
  let [added, withdrawn] = [0, 0];
  for (const [index, { keys = new Map() }] of states.entries()) {
    const before = states[index - 1]?.keys;
    if (before === undefined) continue;
    added += [...keys.keys()].filter((kid) => !before.has(kid)).length;
    withdrawn += [...before.keys()].filter((kid) => !keys.has(kid)).length;
  }
  const ms = (states.at(-1)?.at ?? 0) - (states[0]?.at ?? 0);
  return `In ${durationText(ms)}, ${counted(added, "key")} came and ${counted(withdrawn, "key")} went.`;
}

/** Since when the keys of tokens are published, and whether they still are. */
function signers(states: readonly State[], tokens: readonly SeenToken[]): string[] {
  const byKid = Map.groupBy(tokens, ({ kid }) => kid);
  const [first, last] = [states[0] as State, states.at(-1) as State];
  return [...byKid].flatMap(([kid, own]) => {
    const appeared = states.find(({ keys }) => keys?.has(kid) === true);
    if (appeared === undefined) {
      return [
        `kid ${quoted(kid)} signs and is not published: its key was withdrawn too early, or never published under this kid.`,
      ];
    }
    const lines: string[] = [];
    if (appeared.at > first.at) {
      const begins = Math.min(...own.map(({ at, issuedAt = at }) => issuedAt));
      const waitedMs = begins - appeared.at;
      const when = waitedMs < 0 ? "before it was published" : `${durationText(waitedMs)} after it was published`;
      lines.push(`kid ${quoted(kid)} began to sign ${when}.`);
    }
    if (last.keys?.has(kid) === true) return lines;
    const gone = states[states.findLastIndex(({ keys }) => keys?.has(kid) === true) + 1] as State;
    const leftMs = Math.max(...own.map(({ expiresAt = 0 }) => expiresAt)) - gone.at;
    const end =
      leftMs > 0 ? `while a token was valid for ${durationText(leftMs)} more` : "after its tokens had expired";
    lines.push(`kid ${quoted(kid)} was withdrawn ${end}.`);
    return lines;
  });
}
