import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { certificateFor } from "../test/client/certificate.ts";
import { histories } from "./histories.ts";
import { Issuer } from "./issuer.ts";
import { type Observation, observe, startOfHistories } from "./observe.ts";
import { startChild } from "./process.ts";
import type { Verifier } from "./verifiers.ts";

/** Measurements of one verifier. */
export interface Measured {
  readonly version: string;
  readonly histories: Readonly<Record<string, Observation>>;
}

/** Environment in which verifiers run. */
export interface Place {
  readonly certificate: string;
  readonly folder: string;
  /**
   * Runs a verifier through all histories, or, if it is known how often the verifier refetches on its own, only through
   * some.
   */
  readonly measure: (verifier: Verifier, only?: readonly string[], poll?: number | null) => Promise<Measured>;
  readonly close: () => Promise<void>;
}

/** Creates a TLS certificate and a folder for compiled programs. */
export async function openPlace(): Promise<Place> {
  const pair = certificateFor("localhost");
  const folder = await mkdtemp(join(tmpdir(), "jwksd-lab-"));
  const certificate = join(folder, "certificate.pem");
  await writeFile(certificate, pair.cert);

  const measure: Place["measure"] = async (verifier, only, knownPoll) => {
    const ends: (() => void)[] = [];
    const issuer = await Issuer.listen({ after: (end) => void ends.push(end) }, pair);
    const found: Record<string, Observation> = {};
    const run = async (name: string, poll: number | null): Promise<Observation> => {
      const history = histories(poll).find((each) => each.name === name);
      if (history === undefined) throw new Error(`there is no history ${name}`);
      // Each history starts with an empty cache.
      verifier.setClock?.(startOfHistories);
      const child = startChild(verifier.name, verifier.command, verifier.env);
      try {
        const observation = await observe(history, verifier, child, issuer);
        // Otherwise, the rest would show nothing.
        if (name !== "redirect" && observation.outcomes["a"]?.changes[0]?.[1] !== true)
          throw new Error(`${verifier.name} refuses a valid token: ${observation.errors.join(", ")}`);
        return observation;
      } finally {
        child.kill();
      }
    };
    try {
      const poll = knownPoll === undefined ? pollOf((found["max-age-1h"] = await run("max-age-1h", null))) : knownPoll;
      for (const { name } of histories(poll)) {
        if (only === undefined ? found[name] === undefined : only.includes(name)) found[name] = await run(name, poll);
      }
    } finally {
      for (const end of ends) end();
    }
    return { version: verifier.version, histories: found };
  };
  return { certificate, folder, measure, close: () => rm(folder, { recursive: true }) };
}

/**
 * Returns the number of seconds after which a verifier refetches on its own, if it ever does. 0 means that it refetches
 * for each token.
 */
export function pollOf({ times }: Observation): number | null {
  const again = times.find((at) => at > 0);
  // Tokens arrive one second after the round time.
  return again === undefined ? null : again - 1;
}
