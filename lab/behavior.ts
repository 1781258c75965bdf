import type { Behavior } from "../src/doctor/verifiers/caching-behavior.ts";
import { troubleAt } from "./histories.ts";
import type { Observation } from "./observe.ts";
import { type Measured, pollOf } from "./run.ts";

// Conclusions from the observations.

const history = (measured: Measured, name: string): Observation => {
  const found = measured.histories[name];
  if (found === undefined) throw new Error(`${name} was not observed`);
  return found;
};

/** Returns the seconds for which a key's tokens were refused; `null` if they were never accepted. The first token arrives a second after the key. */
export function refusedFor({ outcomes }: Observation, kid: string): number | null {
  const { changes, refused } = outcomes[kid] ?? { changes: [], refused: 0 };
  if (refused === 0) return 0;
  const last = changes.at(-1);
  return last?.[1] === true ? Math.round(last[0] - (changes[0]?.[0] ?? 0) + 1) : null;
}

/** Returns the seconds from a key's removal until it was refused permanently; `null` if it never was. */
export function trustedFor({ outcomes }: Observation, kid: string): number | null {
  const last = outcomes[kid]?.changes.at(-1);
  // Tokens arrive a second after each round time.
  return last === undefined || last[1] ? null : Math.max(0, Math.round(last[0] - 1));
}

/** Returns the seconds of a day's outage for which all tokens were accepted; `null` if none was refused. */
function livesThrough({ outcomes }: Observation, poll: number | null): number | null {
  const refused = outcomes["b"]?.changes.find(([, accepted]) => !accepted);
  if (refused === undefined) return null;
  const seconds = Math.round(refused[0] - 1 - troubleAt(poll));
  // Until the second token, on a clock with whole seconds.
  return seconds <= 5 ? 0 : seconds;
}

export function behaviorOf(name: string, measured: Measured): Behavior {
  const of = (one: string): Observation => history(measured, one);
  // A verifier that renews its cached key with each token trusts the key for as long as its tokens arrive.
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
