import type { Behavior } from "../src/doctor/verifiers/behavior.ts";
import { advice } from "./advice.ts";
import { behaviorOf, refusedFor, trustedFor } from "./behavior.ts";
import type { Data } from "./data.ts";
import { histories } from "./histories.ts";
import { type Observation, type Outcome, patienceSeconds } from "./observe.ts";
import type { Measured } from "./run.ts";

/** The pages as the data makes them: file and text. */
export function pagesOf({ date, verifiers }: Data): Readonly<Record<string, string>> {
  const behaviors = Object.entries(verifiers).map(([name, measured]) => behaviorOf(name, measured));
  const pages = behaviors.map((behavior) => {
    const { name } = behavior;
    return [`docs/verifiers/${slug(name)}.md`, verifierPage(name, verifiers[name] as Measured, behavior)] as const;
  });
  return { "docs/verifiers.md": mainPage(date, behaviors), ...Object.fromEntries(pages) };
}

/** A time as people say it, in the largest unit of which it has two, or one exactly. */
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

const asksAgain = (poll: number | null): string =>
  poll === null ? "never by itself" : poll === 0 ? "for each token" : `after ${inWords(poll)}`;

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
      asksAgain(pollSeconds),
      refuses(inCalm, longest([afterFetch, inCalm, afterForgedKid])),
      trusts(behavior),
      livesThrough(behavior.livesThrough),
      String(floodRequests),
    ];
  });
  const head = [
    "verifier",
    "asks for the set again",
    "refuses a key that signs at once",
    "trusts a removed key",
    "lives through an outage",
    "requests by 1,000 forged kids",
  ];
  return `# What verifiers do

What happens to your users if you rotate a key, remove one, put a cache in front, or are away? It depends on the programs that verify your
tokens. We ran these through ${histories(null).length} histories of a provider, on a clock that runs faster, on ${date}.

${table(head, rows)}

- **Asks for the set again**: while tokens arrive, with \`max-age\` of an hour.
- **Refuses a key that signs at once**: for how long after the key was published without announcement. First in calm; then at worst: just after the verifier
  fetched the set, or after a forged token. **A key that was announced for two hours or a day was refused by none**, with \`max-age\` of an hour.
- **Trusts a removed key**: with \`max-age\` of 0; 5 minutes; 1 hour; 1 year, where these differ. Its tokens keep arriving, and no token
  names a kid that the verifier does not know. A token of a key that its copy lacks makes most of them fetch the set, and drop the removed key.
- **Lives through an outage**: for how long it accepts tokens while the set is answered with 503, from the moment when it asks again.
- **Requests by 1,000 forged kids**: within 103 seconds, one after the other.

Each page says how the verifier was set up, what its users should set, and the line of source that decides. [All observations](https://github.com/jwksd/jwksd/blob/main/lab/data.json) are
JSON. \`node lab/main.ts\` makes them again.

## How it is measured

Each verifier is a process, set up as its documentation shows it. It gets tokens of an issuer on loopback, over TLS. Its clock stands still while it
verifies a token, and is then set to the time of the next one. In Node, a module that is loaded first sets \`Date\`, \`performance\`,
\`process.hrtime\` and timers. Python, Ruby and Apache run under libfaketime. Go does not read the clock through libc: the standard library is compiled
with a \`time.Now\` that can be set, and the verifier as it is. Time-outs are real, so a server that does not answer is waited for in real time.

We ran all of it twice: ${behaviors.length} verifiers in ${histories(null).length} histories. One cell differed, by one request: jose asked 1,838 and 1,839 times in an outage of a
day. That was chance, on the connection we suppose: five more runs had 1,838. One row would be chance elsewhere: two servers that disagree
answer in turn here, and a load balancer may ask either.

The verifiers of Debian are those of Debian 12, and older than what their authors publish: look at the version.

## What was not measured

| what | why |
| --- | --- |
| jwcrypto, go-jose, python-jose, jsonwebtoken and fast-jwt alone | they do not fetch: the set, and how long it is kept, is yours |
| the sample server of the MCP SDK | it asks the authorization server about each token (RFC 7662), and has no keys. With \`bearer.mcp()\`, it does what jwksd's guard does |
| nginx | Debian's packages have no module that verifies a JWT |
| Nimbus and other verifiers for Java | Debian 12 has no package of them |
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

**What it does.** ${known.says} [The line that decides](https://github.com/${known.line}), at ${tag}.

**What to set.** ${known.set}

## What was observed

Tokens arrive all the time, in steps of a second to some hours. The set has \`max-age\` of an hour, and an ETag, unless it says otherwise. What is
wrong with it begins when this verifier asks again. All tokens that no line names are accepted.

${table(["history", "requests for the set", "tokens"], rows)}
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
      : [waited >= patienceSeconds ? `no answer within ${patienceSeconds} s` : `an answer takes ${waited} s`];
  const kids = Object.keys(outcomes).flatMap((kid) => told(name, kid, observation) ?? []);
  return (kids.length === 0 ? ["all accepted", ...wait] : [...kids, ...wait]).join("; ");
}

/** What became of the tokens of a key, if that is not that all were accepted. */
function told(history: string, kid: string, observation: Observation): string | undefined {
  const { tokens, refused, changes } = observation.outcomes[kid] as Outcome;
  const name =
    kid === "x" ? "forged" : kid === "a" ? "old key" : /^(?:away|limited|empty)/.test(history) ? "good key" : "new key";
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
