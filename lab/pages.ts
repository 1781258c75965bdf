import type { Behavior } from "../src/doctor/verifiers/measured-behavior.ts";
import { advice } from "./advice.ts";
import { behaviorOf, refusedFor, trustedFor } from "./behavior.ts";
import type { Data } from "./data.ts";
import { histories } from "./histories.ts";
import { type Observation, type Outcome, patienceSeconds } from "./observe.ts";
import type { Measured } from "./run.ts";

/** Returns the pages for the data: files and their content. */
export function pagesOf({ date, verifiers }: Data): Readonly<Record<string, string>> {
  const behaviors = Object.entries(verifiers).map(([name, measured]) => behaviorOf(name, measured));
  const pages = behaviors.map((behavior) => {
    const { name } = behavior;
    return [`docs/verifiers/${slug(name)}.md`, verifierPage(name, verifiers[name] as Measured, behavior)] as const;
  });
  return { "docs/verifiers.md": mainPage(date, behaviors), ...Object.fromEntries(pages) };
}

/** Writes a time in the largest unit of which it has two, or exactly one. */
function inWords(seconds: number): string {
  const units = { d: 86_400, h: 3_600, min: 60, s: 1 };
  const [unit, size] = Object.entries(units).find(([, size]) => seconds >= 2 * size || seconds === size) ?? ["s", 1];
  const count = seconds / size;
  return `${count < 10 ? Math.round(count * 10) / 10 : Math.round(count)} ${unit}`;
}

const row = (cells: readonly string[]): string => `| ${cells.join(" | ")} |`;
const table = (head: readonly string[], rows: readonly (readonly string[])[]): string =>
  [row(head), row(head.map(() => "---")), ...rows.map(row)].join("\n");

const slug = (name: string): string => name.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-");

const refetches = (poll: number | null): string =>
  poll === null ? "never on its own" : poll === 0 ? "for each token" : `after ${inWords(poll)}`;

const lasting = (seconds: number | null): string =>
  seconds === null ? "until restart" : seconds === 0 ? "not at all" : inWords(seconds);

const refuses = (inCalm: number | null, worst: number | null): string =>
  inCalm === worst ? lasting(worst) : `${lasting(inCalm)}; ${lasting(worst)} at worst`;

const longest = (times: readonly (number | null)[]): number | null =>
  times.includes(null) ? null : Math.max(...(times as number[]));

function trusts({ trustsRemovedKey: by }: Behavior): string {
  const times = [by[0], by[300], by[3600], by[31536000]] as const;
  return new Set(times).size === 1 ? lasting(times[0]) : times.map(lasting).join("; ");
}

const livesThrough = (seconds: number | null): string =>
  seconds === null ? "a day" : seconds === 0 ? "not at all" : inWords(seconds);

function mainPage(date: string, behaviors: readonly Behavior[]): string {
  const rows = behaviors.map((behavior) => {
    const { name, version, pollSeconds, refusesNewKey, floodRequests } = behavior;
    const { afterFetch, inCalm, afterForgedKid } = refusesNewKey;
    return [
      `[${name}](verifiers/${slug(name)}.md) ${version}`,
      refetches(pollSeconds),
      refuses(inCalm, longest([afterFetch, inCalm, afterForgedKid])),
      trusts(behavior),
      livesThrough(behavior.livesThrough),
      String(floodRequests),
    ];
  });
  const head = [
    "Verifier",
    "Refetch",
    "Refusal of an unannounced key",
    "Trust in a removed key",
    "Outage survived",
    "Requests for 1,000 forged kids",
  ];
  return `# Verifier behavior

If you rotate a key, remove one, put a cache in front of the set or have an outage, the effect on your users depends on the programs that verify
your tokens. On ${date}, we ran these verifiers through ${histories(null).length} histories of a provider, on an accelerated clock.

${table(head, rows)}

- **Refetch**: time until the verifier fetches the set again while tokens arrive, with a \`max-age\` of an hour.
- **Refusal of an unannounced key**: how long the verifier refuses tokens signed with a key that was published without announcement. First in calm;
  then at worst: just after the verifier fetched the set, or after a forged token. **No verifier refused a key that was announced for two hours or
  a day**, with a \`max-age\` of an hour.
- **Trust in a removed key**: how long the verifier accepts the key, for a \`max-age\` of 0, 5 minutes, 1 hour and 1 year. One value means
  that all four are equal. The key's tokens keep arriving, and no token names an unknown kid. A token signed with a key that the cached set lacks makes most
  verifiers refetch the set and drop the removed key.
- **Outage survived**: how long the verifier accepts tokens while the set returns 503, counted from its next refetch.
- **Requests for 1,000 forged kids**: sent within 103 seconds, one at a time.

Each page says how the verifier was set up, what its users should set, and which line of source decides. [All
observations](https://github.com/jwksd/jwksd/blob/main/lab/data.json) are JSON. \`node lab/main.ts\` measures them again.

## Method

Each verifier is a process, set up as its documentation shows. It receives tokens from an issuer on loopback, over TLS. Its clock stands still while
it verifies a token, and is then set to the time of the next one. In Node, a module that is loaded first controls \`Date\`, \`performance\`,
\`process.hrtime\` and timers. Python, Ruby and Apache run under libfaketime. Go does not read the clock through libc, so its standard library is
compiled with a \`time.Now\` that can be set; the verifier is unchanged. Timeouts are real, so waiting for a server that does not respond takes real
time.

We ran everything twice: ${behaviors.length} verifiers in ${histories(null).length} histories. One cell differed, by one request: jose sent 1,838 and 1,839 requests in an
outage of a day. We suppose that this was chance, on the connection: five more runs had 1,838. The four histories in which an issuer ends were run a day later; there, jwksd's guard sent up to
nine requests more or fewer to an issuer without keys. One row would depend on chance elsewhere: two servers
that disagree respond in turn here, while a load balancer may choose either.

The Debian verifiers come from Debian 12, and are older than their authors' latest releases: note the version.

## Not measured

| Verifier | Reason |
| --- | --- |
| jwcrypto, go-jose, python-jose, jsonwebtoken and fast-jwt alone | they do not fetch: the caller decides how long to keep the set |
| the MCP SDK's sample server | it sends each token to the authorization server (RFC 7662), and has no keys. With \`bearer.mcp()\`, it behaves like jwksd's guard |
| nginx | Debian has no package of a module that verifies JWTs |
| Nimbus and other Java verifiers | Debian 12 has no packages of them |
`;
}

function verifierPage(name: string, measured: Measured, { pollSeconds }: Behavior): string {
  const known = advice[name];
  if (known === undefined) throw new Error(`lab/advice.ts has nothing about ${name}`);
  const rows = histories(pollSeconds).map((history) => {
    const observation = measured.histories[history.name];
    if (observation === undefined) throw new Error(`${name}: ${history.name} is missing`);
    return [history.about, asked(observation, history.tokens.at(-1)?.[0] ?? 0), became(history.name, observation)];
  });
  const [, tag = ""] = /\/blob\/([^/]+)\//.exec(known.line) ?? [];
  return `# ${name}, over time

Version ${measured.version}, set up as: ${known.setUp}. [All verifiers](../verifiers.md).

**Behavior.** ${known.says} [The deciding line](https://github.com/${known.line}), at ${tag}.

**Settings.** ${known.set}

## Observations

Tokens keep arriving, a second to a few hours apart. Unless the history says otherwise, the set has a \`max-age\` of an hour and an ETag. A fault
begins when this verifier refetches the set. Tokens that a row does not mention are accepted.

${table(["History", "Requests for the set", "Tokens"], rows)}
`;
}

function asked({ requests, times, conditional, discoveries }: Observation, seconds: number): string {
  const again = times.find((at) => at > 0);
  const when = again === undefined ? "" : `, the second after ${inWords(again)}`;
  const how = conditional === 0 ? "" : `, ${conditional} with \`If-None-Match\``;
  const metadata = discoveries > 1 ? `; ${discoveries} for discovery` : "";
  return `${requests} in ${inWords(seconds)}${when}${how}${metadata}`;
}

function became(name: string, observation: Observation): string {
  const { outcomes, waited } = observation;
  const wait =
    waited === undefined
      ? []
      : [waited >= patienceSeconds ? `no result within ${patienceSeconds} s` : `a result takes ${waited} s`];
  const kids = Object.keys(outcomes).flatMap((kid) => outcomeText(name, kid, observation) ?? []);
  return (kids.length === 0 ? ["all accepted", ...wait] : [...kids, ...wait]).join("; ");
}

/** Describes the outcome of a key's tokens, unless all were accepted. */
function outcomeText(history: string, kid: string, observation: Observation): string | undefined {
  const { tokens, refused, changes } = observation.outcomes[kid] as Outcome;
  const name =
    kid === "x"
      ? "forged"
      : kid === "a"
        ? "old key"
        : /^(?:away|limited|empty)/.test(history)
          ? "sound key"
          : "new key";
  const [[, accepted] = [], [from] = [0], [to] = [0]] = changes;
  if (refused === 0)
    return kid === "a" && /^(?:max-age|removed)/.test(history) ? "old key: accepted to the end" : undefined;
  if (refused === tokens) return `${name}: refused`;
  if (changes.length === 2 && accepted)
    return `${name}: accepted for ${inWords(trustedFor(observation, kid) ?? 0)}, then refused`;
  if (changes.length === 2) return `${name}: refused for ${inWords(refusedFor(observation, kid) ?? 0)}`;
  if (changes.length === 3 && accepted) return `${name}: refused for ${inWords(to - from)} from ${inWords(from)} on`;
  return `${name}: ${refused} of ${tokens} refused, by turns`;
}
