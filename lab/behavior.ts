import type { Behavior } from "../src/doctor/verifiers/behavior.ts";
import type { Observation } from "./observe.ts";
import { troubleAt } from "./histories.ts";
import { type Measured, pollOf } from "./run.ts";

// What follows from the observations.

const history = (measured: Measured, name: string): Observation => {
  const found = measured.histories[name];
  if (found === undefined) throw new Error(`${name} was not observed`);
  return found;
};

/** Seconds for which the tokens of a key were refused; `null` if they were never accepted. The first one comes a second after what is measured from. */
export function refusedFor({ outcomes }: Observation, kid: string): number | null {
  const { changes, refused } = outcomes[kid] ?? { changes: [], refused: 0 };
  if (refused === 0) return 0;
  const last = changes.at(-1);
  return last?.[1] === true ? Math.round(last[0] - (changes[0]?.[0] ?? 0) + 1) : null;
}

/** Seconds from its removal until a key was refused for good; `null` if it never was. */
export function trustedFor({ outcomes }: Observation, kid: string): number | null {
  const last = outcomes[kid]?.changes.at(-1);
  // It is asked for a second after each round time.
  return last === undefined || last[1] ? null : Math.max(0, Math.round(last[0] - 1));
}

/** Seconds of an outage of a day for which all tokens were accepted; `null` if all were. */
function livesThrough({ outcomes }: Observation, poll: number | null): number | null {
  const refused = outcomes["b"]?.changes.find(([, accepted]) => !accepted);
  if (refused === undefined) return null;
  const seconds = Math.round(refused[0] - 1 - troubleAt(poll));
  // Until the second token, on a clock of whole seconds.
  return seconds <= 5 ? 0 : seconds;
}

export function behaviorOf(name: string, measured: Measured): Behavior {
  const of = (one: string): Observation => history(measured, one);
  // One that renews its copy with each token trusts the key for as long as its tokens come.
  const trusts = (one: string): number | null =>
    trustedFor(of("removed-busy"), "a") === null ? null : trustedFor(of(one), "a");
  const pollSeconds = pollOf(of("max-age-1h"));
  return {
    name,
    version: measured.version,
    pollSeconds,
    refetchesUnknownKid: (of("unknown-once").outcomes["x"]?.requests ?? 0) > 0,
    refusesNewKey: {
      afterFetch: refusedFor(of("rotation-0"), "b"),
      inCalm: refusedFor(of("rotation-calm"), "b"),
      afterForgedKid: refusedFor(of("unknown-once"), "b"),
    },
    trustsRemovedKey: {
      0: trusts("max-age-0"),
      300: trusts("max-age-5m"),
      3600: trusts("max-age-1h"),
      31536000: trusts("max-age-1y"),
    },
    trustsRevokedKey: trustedFor(of("revoked"), "a"),
    livesThrough: livesThrough(of("away-1d"), pollSeconds),
    floodRequests: of("unknown-1000").outcomes["x"]?.requests ?? 0,
  };
}
