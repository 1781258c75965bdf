import { durationText } from "../base/format.ts";
import { type Lifetime, lifetimeOf } from "./cache-lifetime.ts";
import { isForSignatures } from "./key-purpose.ts";
import { entriesIn, isObject, readJson } from "./lenient-json.ts";
import type { Observations, SeenToken } from "./observations.ts";
import { field, setResponse } from "./read-exchange.ts";
import { type State, statesOf } from "./set-states.ts";
import { counted, quoted } from "./value-text.ts";
import { removedKeyText } from "./verifiers/behavior-text.ts";

/**
 * Describes in sentences how the issuer rotates its keys, to the extent that fetches and tokens reveal it. The
 * sentences may quote the issuer, so escape them before you print them.
 */
export async function describeRotation(observations: Observations): Promise<readonly string[]> {
  const states = (await statesOf(observations)).filter(({ keys }) => keys !== undefined);
  const set = setResponse(observations);
  const [first] = states;
  // A file does not show how keys are rotated.
  if (set?.status === undefined || first === undefined) return [];
  const { tokens = [], laterFetches = [] } = observations;
  const kept = lifetimeOf(set);
  const caching = cachingText(kept, field(set, "cache-control"));
  const together = states.filter(({ at }) => at === first.at);
  const responses = `${counted(together.length, "simultaneous response")} had`;
  const different = new Set(together.map(({ identity }) => identity)).size;
  // If servers disagree, it is unknown which keys exist and when they were added or removed.
  if (different > 1) return [`${responses} ${different} different sets of keys: servers disagree.`, caching];
  return [
    ...signingKeysText(set.body),
    caching,
    removedKeyText(kept.freshSeconds ?? 0),
    ...(together.length < 2 ? [] : [`${responses} the same keys.`]),
    ...(laterFetches.length === 0 ? [] : [movementText(states)]),
    ...signerTexts(states, tokens),
  ];
}

function signingKeysText(body: Uint8Array | undefined): string[] {
  const { value } = readJson(body ?? new Uint8Array(), "");
  const count = (entriesIn(value) ?? []).filter((key) => isObject(key) && isForSignatures(key)).length;
  if (count === 0) return [];
  if (count === 1) return ["Only one signing key is published, so the next key has not been announced."];
  return [
    `${counted(count, "signing key")} are published: one is used for signing, and the others are announced or retiring.`,
  ];
}

function cachingText({ noStore, servedSeconds }: Lifetime, control: string | undefined): string {
  if (noStore) return "Caches must not keep the set, so a new key can sign as soon as every server publishes it.";
  if (servedSeconds === undefined) return "No lifetime is stated: each verifier decides how long it keeps the set.";
  const by = control === undefined ? "Expires" : quoted(control);
  return `Caches may keep the set for ${durationText(servedSeconds * 1000)} (${by}), so a new key must be published for longer than that before it starts signing.`;
}

function movementText(states: readonly State[]): string {
  let [added, withdrawn] = [0, 0];
  for (const [index, { keys = new Map() }] of states.entries()) {
    const before = states[index - 1]?.keys;
    if (before === undefined) continue;
    added += [...keys.keys()].filter((kid) => !before.has(kid)).length;
    withdrawn += [...before.keys()].filter((kid) => !keys.has(kid)).length;
  }
  const ms = (states.at(-1)?.at ?? 0) - (states[0]?.at ?? 0);
  return `In ${durationText(ms)}, the issuer added ${counted(added, "key")} and withdrew ${counted(withdrawn, "key")}.`;
}

/**
 * Describes two things for each key that signed a token: how long after its publication it was first used for signing,
 * and when it was withdrawn.
 */
function signerTexts(states: readonly State[], tokens: readonly SeenToken[]): string[] {
  const byKid = Map.groupBy(tokens, ({ kid }) => kid);
  return [...byKid].flatMap(([kid, own]) => {
    const publishes = ({ keys }: State): boolean => keys?.has(kid) === true;
    const appeared = states.find(publishes);
    if (appeared === undefined) {
      return [
        `kid ${quoted(kid)} is used for signing but is not published: the key was withdrawn too early, or was never published under this kid.`,
      ];
    }
    const texts: string[] = [];
    if (appeared.at > (states[0]?.at ?? 0)) {
      const begins = Math.min(...own.map(({ at, issuedAt = at }) => issuedAt));
      const waitedMs = begins - appeared.at;
      const when = waitedMs < 0 ? "before it was published" : `${durationText(waitedMs)} after it was published`;
      texts.push(`kid ${quoted(kid)} was first used for signing ${when}.`);
    }
    const gone = states[states.findLastIndex(publishes) + 1];
    if (gone === undefined) return texts;
    const leftMs = Math.max(...own.map(({ expiresAt = 0 }) => expiresAt)) - gone.at;
    const end =
      leftMs > 0 ? `while a token was still valid for another ${durationText(leftMs)}` : "after its tokens had expired";
    texts.push(`kid ${quoted(kid)} was withdrawn ${end}.`);
    return texts;
  });
}
