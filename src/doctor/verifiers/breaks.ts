import { cited } from "./cited.ts";
import type { Code } from "../codes.ts";
import { rows, versions } from "./verified.ts";

/** A verifier that fails. */
export interface Break {
  /** Its name. */
  readonly client: string;
  /** The version that was run, or that the source is of. */
  readonly version: string;
  /** `every token`: also tokens of good keys. `its tokens`: only tokens of the keys in the finding. */
  readonly fails: "every token" | "its tokens";
  /** Whether it fails at some forms of the defect only. */
  readonly inSomeForms?: true;
  /** URL of a public issue or a line of source; absent if the verifier was run. */
  readonly source?: string;
}

/** Verifiers that fail, by code: those that were run, then those that are cited. */
export function breaksOf(code: Code): readonly Break[] {
  return [...Object.keys(versions).flatMap((client) => observed(code, client)), ...(cited[code] ?? [])];
}

/** How many verifiers were run against a code. */
export function triedOf(code: Code): number {
  const own = rows.filter((row) => row.code === code);
  return Object.keys(versions).filter((client) => own.some(({ untried }) => !untried.includes(client))).length;
}

/** What the runs of one verifier show about a code. */
function observed(code: Code, client: string): Break[] {
  const tried = rows.filter((row) => row.code === code && !row.untried.includes(client));
  const all = tried.filter((row) => row.all.includes(client));
  const its = tried.filter((row) => row.its.includes(client));
  if (all.length + its.length === 0) return [];
  const isAlways = all.length + its.length === tried.length;
  return [
    {
      client,
      version: versions[client] ?? "",
      fails: its.length === 0 ? "every token" : "its tokens",
      ...(!isAlways && { inSomeForms: true }),
    },
  ];
}
