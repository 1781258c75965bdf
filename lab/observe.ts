import { ecKey } from "../test/support/keys.ts";
import { compact, signature } from "../test/token/compact.ts";
import type { History } from "./histories.ts";
import type { Issuer } from "./issuer.ts";
import { audience, nonce } from "./npm/drivers.ts";
import type { Child } from "./process.ts";
import type { Verifier } from "./verifiers.ts";

/** Outcome of a key's tokens. */
export interface Outcome {
  tokens: number;
  refused: number;
  /** Requests for the set that they caused. */
  requests: number;
  /** The first twelve times at which tokens began to be accepted or refused. */
  readonly changes: [at: number, accepted: boolean][];
}

/** A verifier's behavior in a history. */
export interface Observation {
  /** Number of requests for the set. */
  readonly requests: number;
  /** Times of the first twelve. */
  readonly times: readonly number[];
  /** Number of requests with `If-None-Match`. */
  readonly conditional: number;
  readonly discoveries: number;
  readonly outcomes: Readonly<Record<string, Outcome>>;
  /** Errors of refused tokens. */
  readonly errors: readonly string[];
  /** Real seconds until the last token was accepted or refused, if the server hangs. */
  readonly waited?: number;
}

/** Time at which all histories begin. */
export const startOfHistories = Date.UTC(2027, 0, 1);
export const patienceSeconds = 40;
const shown = 12;

/** Leads a verifier through a history. */
export async function observe(
  history: History,
  { typ, setClock }: Verifier,
  child: Child,
  issuer: Issuer,
): Promise<Observation> {
  const { answers, tokens } = history;
  issuer.begin(startOfHistories);
  const pending = [...answers];
  const outcomes: Record<string, Outcome> = {};
  const errors = new Set<string>();
  let waited: number | undefined;
  for (const [at, kid] of tokens) {
    while (pending[0] !== undefined && pending[0][0] <= at)
      issuer.answer = (pending.shift() as History["answers"][0])[1];
    issuer.now = startOfHistories + at * 1_000;
    setClock?.(issuer.now);
    const before = issuer.received.length;
    const began = performance.now();
    const question = { at: issuer.now, token: tokenOf(kid, issuer, typ), ...issuer.configured };
    const verdict = await inTime(child, question);
    if (issuer.answer.hangs)
      waited = Math.max(waited ?? 0, Math.round((verdict?.ms ?? performance.now() - began) / 1_000));
    if (verdict === undefined) errors.add("no answer");
    else if (verdict.error !== undefined) errors.add(verdict.error.replaceAll(/\d+/g, "N").replaceAll(/\bx?N\b/g, "N"));
    // The kids of a flood count as one.
    const name = kid.startsWith("x") ? "x" : kid;
    const outcome = (outcomes[name] ??= { tokens: 0, refused: 0, requests: 0, changes: [] });
    const accepted = verdict?.verified === true;
    outcome.tokens++;
    outcome.requests += issuer.received.length - before;
    if (!accepted) outcome.refused++;
    const { changes } = outcome;
    if (changes.at(-1)?.[1] !== accepted && changes.length < shown) changes.push([at, accepted]);
    if (verdict === undefined) break;
  }
  const { received, discoveries } = issuer;
  return {
    requests: received.length,
    times: received.slice(0, shown).map(({ at }) => at),
    conditional: received.filter(({ conditional }) => conditional).length,
    discoveries,
    outcomes,
    errors: [...errors].sort().slice(0, 5),
    ...(waited !== undefined && { waited }),
  };
}

function tokenOf(kid: string, issuer: Issuer, typ: string): string {
  const { iss } = issuer.configured;
  const iat = Math.floor(issuer.now / 1_000);
  const claims = { iss, aud: audience, sub: "subject", client_id: "client", jti: kid, nonce, iat, exp: iat + 600 };
  return compact({ alg: "ES256", typ, kid }, claims, signature("ES256", ecKey(kid.slice(0, 1))));
}

async function inTime(child: Child, question: object) {
  const late = Promise.withResolvers<undefined>();
  const timer = setTimeout(() => late.resolve(undefined), patienceSeconds * 1_000);
  return Promise.race([child.ask(question), late.promise]).finally(() => clearTimeout(timer));
}
