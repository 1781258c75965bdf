// Sentences about the measured behavior of verifiers.

import { durationText } from "../../base/format.ts";
import { type Behavior, type MaxAge, behaviors, measuredOn } from "./caching-behavior.ts";

/** Selects a measured time, in seconds. `null` means that the behavior does not end on its own. */
type Time = (behavior: Behavior) => number | null;

const maxAges: readonly MaxAge[] = [0, 300, 3600, 31_536_000];

/**
 * Rounds up to the next measured `max-age`. That is safe, because a shorter `max-age` never makes a verifier trust a
 * key for longer.
 */
const triedFor = (seconds: number): MaxAge => maxAges.find((tried) => tried >= seconds) ?? 31_536_000;

const longest = (times: readonly (number | null)[]): number | null =>
  times.includes(null) ? null : Math.max(...times.map(Number));

const worstOfNewKey: Time = ({ refusesNewKey: { afterFetch, inCalm, afterForgedKid } }) =>
  longest([afterFetch, inCalm, afterForgedKid]);

/** Describes which verifiers do something and for how long, starting with the shortest time. */
function verifiersThat(what: string, time: Time): string {
  const groups = [...Map.groupBy(behaviors, time)].sort(([a], [b]) => (a ?? Infinity) - (b ?? Infinity));
  const described = groups.map(([seconds, them]) => {
    const until = seconds === null ? "until they are restarted" : `for up to ${durationText(seconds * 1000)}`;
    return { isNever: seconds === 0, names: them.map(({ name }) => name).join(", "), until };
  });
  const never = described.find(({ isNever }) => isNever);
  const those = described.filter(({ isNever }) => !isNever).map(({ names, until }) => `${names} ${until}`);
  const others = never === undefined ? "" : ` The others (${never.names}) do not.`;
  return `As of ${measuredOn}, these verifiers ${what}: ${those.join("; ")}.${others}`;
}

/** Describes how long verifiers reject tokens signed with a key that is used as soon as it is published. */
export const newKeyText = (): string => verifiersThat("reject its tokens", worstOfNewKey);

/** Describes how long verifiers trust a key that was replaced immediately. */
export const replacedKeyText = (): string =>
  verifiersThat(
    "keep trusting the revoked key even when tokens signed with the new key arrive",
    (one) => one.trustsRevokedKey,
  );

/**
 * Describes how long verifiers trust a removed key if no token has an unknown kid.
 *
 * @param maxAge the set's `max-age`, in seconds
 */
export const removedKeyText = (maxAge: number): string =>
  verifiersThat("trust a key that was removed from the set", (one) => one.trustsRemovedKey[triedFor(maxAge)]);

/** Describes what happens to tokens signed with a key that was announced for as long as the rules require. */
export const announcedKeyText = (): string =>
  `None of the ${behaviors.length} verifiers tested on ${measuredOn} rejects a token whose key had been announced for at least two hours in a set with a max-age of one hour.`;
