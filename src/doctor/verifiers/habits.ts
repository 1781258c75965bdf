// What was measured of verifiers, as sentences.
import { durationText } from "../../base/format.ts";
import { type Behavior, type MaxAge, behaviors, measuredOn } from "./behavior.ts";

/** In seconds; `null` for no end. */
type Time = (behavior: Behavior) => number | null;

const maxAges: readonly MaxAge[] = [0, 300, 3600, 31_536_000];

/** The shortest time that was tried and is not shorter: verifiers trust no key for longer with a shorter one. */
const triedFor = (seconds: number): MaxAge => maxAges.find((tried) => tried >= seconds) ?? 31_536_000;

const longest = (times: readonly (number | null)[]): number | null =>
  times.includes(null) ? null : Math.max(...times.map(Number));

const worstOfNewKey: Time = ({ refusesNewKey: { afterFetch, inCalm, afterForgedKid } }) =>
  longest([afterFetch, inCalm, afterForgedKid]);

/** Who does something, and for how long, the shortest time first. */
function whoDo(what: string, time: Time): string {
  const groups = [...Map.groupBy(behaviors, time)].sort(([a], [b]) => (a ?? Infinity) - (b ?? Infinity));
  const said = groups.map(([seconds, them]) => {
    const until = seconds === null ? "until it starts again" : `for up to ${durationText(seconds * 1000)}`;
    return { isNever: seconds === 0, names: them.map(({ name }) => name).join(", "), until };
  });
  const never = said.find(({ isNever }) => isNever);
  const those = said.filter(({ isNever }) => !isNever).map(({ names, until }) => `${names} ${until}`);
  const others = never === undefined ? "" : ` Others do not: ${never.names}.`;
  return `As measured on ${measuredOn}, these verifiers ${what}: ${those.join("; ")}.${others}`;
}

/** For how long verifiers refuse tokens of a key that signs as soon as it is published. */
export const newKeyText = (): string => whoDo("refuse its tokens", worstOfNewKey);

/** For how long verifiers trust a key that was replaced at once. */
export const replacedKeyText = (): string =>
  whoDo("trust it although tokens of the new key arrive", (one) => one.trustsRevokedKey);

/** For how long verifiers trust a key that has left the set, while no token has an unknown kid. @param maxAge of the set, in seconds */
export const removedKeyText = (maxAge: number): string =>
  whoDo("trust a key that has left the set", (one) => one.trustsRemovedKey[triedFor(maxAge)]);

/** What becomes of tokens whose key was announced as long as the rules demand. */
export const announcedKeyText = (): string =>
  `None of ${behaviors.length} verifiers that were measured on ${measuredOn} refuses a token of a key that was announced for two hours or longer, in a set with max-age of an hour.`;
