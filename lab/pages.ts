import type { Behavior } from "../src/doctor/verifiers/caching-behavior.ts";
import { advice } from "./advice.ts";
import { behaviorOf, refusedFor, trustedFor } from "./behavior.ts";
import type { Data } from "./data.ts";
import { histories } from "./histories.ts";
import { type Observation, type Outcome, patienceSeconds } from "./observe.ts";
import type { Measured } from "./run.ts";

/** Returns the pages for the data: each file and its content. */
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

/** Returns names joined by "with", each followed by its version if versions are given. */
function nameText(name: string, version = ""): string {
  const versions = version.split(" + ");
  return name
    .split(" + ")
    .map((part, index) => `${part} ${versions[index] ?? ""}`.trim())
    .join(" with ");
}

const slug = (name: string): string => name.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-");

const refetches = (poll: number | null): string =>
  poll === null ? "never on its own" : poll === 0 ? "on every token" : `after ${inWords(poll)}`;

const lasting = (seconds: number | null): string =>
  seconds === null ? "until restart" : seconds === 0 ? "none" : inWords(seconds);

const refuses = (inCalm: number | null, worst: number | null): string =>
  inCalm === worst ? lasting(worst) : `${lasting(inCalm)}; at worst ${lasting(worst)}`;

const longest = (times: readonly (number | null)[]): number | null =>
  times.includes(null) ? null : Math.max(...(times as number[]));

function trusts({ trustsRemovedKey: by }: Behavior): string {
  const times = [by[0], by[300], by[3600], by[31536000]] as const;
  return new Set(times).size === 1 ? lasting(times[0]) : times.map(lasting).join("; ");
}

const livesThrough = (seconds: number | null): string =>
  seconds === null ? "a day" : seconds === 0 ? "none" : inWords(seconds);

function mainPage(date: string, behaviors: readonly Behavior[]): string {
  const rows = behaviors.map((behavior) => {
    const { name, version, pollSeconds, refusesNewKey, floodRequests } = behavior;
    const { afterFetch, inCalm, afterForgedKid } = refusesNewKey;
    return [
      `[${nameText(name, version)}](verifiers/${slug(name)}.md)`,
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
    "Rejection of an unannounced key",
    "Trust in a removed key",
    "Outage survived",
    "Requests for 1,000 forged kids",
  ];
  return `# Verifier behavior

If you rotate or remove a key, put a cache in front of the set, or have an outage, the effect on your users depends on the programs that
verify your tokens. On ${date}, we tested these verifiers with ${histories(null).length} scenarios ("histories"), each a sequence of changes at a provider, on
an accelerated clock.

${table(head, rows)}

- **Refetch**: when the verifier fetches the set again if \`max-age\` is an hour and tokens keep arriving.
- **Rejection of an unannounced key**: how long the verifier rejects tokens signed with a key that starts signing as soon as it is
  published. The first value is for a key published at a typical time. The value after "at worst" is for a key published just after the
  verifier fetched the set, or just after a forged token. **No verifier rejected a key that was announced for two hours or a day**, with a
  \`max-age\` of an hour.
- **Trust in a removed key**: how long the verifier accepts the key if \`max-age\` is 0, 5 minutes, 1 hour and 1 year. A single value means
  that all four are equal. In this test, tokens signed with the key keep arriving, and no token has an unknown kid. Otherwise, a token
  whose kid is not in the cached set would make most verifiers refetch the set and drop the removed key.
- **Outage survived**: how long the verifier keeps accepting tokens while requests for the set return 503, counted from
  its first refetch during the outage.
- **Requests for 1,000 forged kids**: how many requests the verifier sends for tokens with 1,000 different forged kids, which arrive one at
  a time within 103 seconds.

Each verifier's page says how it was set up, which settings to choose, and which line of its source code determines the behavior.
[All observations](https://github.com/jwksd/jwksd/blob/main/lab/data.json) are in one JSON file. To repeat the measurements, run
\`node lab/main.ts\`.

## Method

Each verifier runs in its own process, set up as its documentation shows. It receives tokens from an issuer on loopback, over TLS. The
verifier's clock stands still while it verifies a token, and is then set to the arrival time of the next token. In Node, a preloaded module
controls \`Date\`, \`performance\`, \`process.hrtime\` and timers. Python, Ruby and Apache run under libfaketime. Go does not read the clock
through libc, so we compiled its standard library with a settable \`time.Now\`; the verifier is unchanged. Timeouts are real, so waiting for a
server that does not respond takes real time.

We ran all ${behaviors.length} verifiers through all ${histories(null).length} histories twice. The two runs differed in only one value: in a one-day outage, jose sent 1,838
requests in one run and 1,839 in the other. This was probably a random effect of the connection, because five more runs each had 1,838. The
four histories in which an issuer is decommissioned were run a day after the others. In these, the number of requests that jwksd's guard
sent to an issuer without keys varied by up to nine. Outside this lab, one row would depend on chance: here, two servers that disagree take
turns responding, whereas a load balancer may choose either of them.

The verifiers from Debian are the versions in Debian 12, which are older than their authors' latest releases.

## Not measured

| Verifier | Reason |
| --- | --- |
| jwcrypto, go-jose, python-jose, jsonwebtoken and fast-jwt alone | They do not fetch sets; the caller decides how long to keep a set |
| the MCP SDK's sample server | It sends every token to the authorization server (RFC 7662) and does not use keys. With \`bearer.mcp()\`, it behaves like jwksd's guard |
| nginx | Debian does not package a module that verifies JWTs |
| Nimbus and other Java verifiers | Debian 12 does not package them |
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
  return `# ${nameText(name)} over time

We tested ${nameText(name, measured.version)}, set up as follows: ${known.setUp}. [Verifier behavior](../verifiers.md) compares all verifiers.

**Behavior.** ${known.says} This follows from [this line of its source](https://github.com/${known.line}) (${tag}).

**Settings.** ${known.set}

## Observations

Tokens keep arriving, from a second to a few hours apart. Unless the history says otherwise, the set has a \`max-age\` of an hour and an ETag. A fault
begins when this verifier refetches the set. The verifier accepted all tokens that a row does not mention.

${table(["History", "Requests for the set", "Tokens"], rows)}
`;
}

function asked({ requests, times, conditional, discoveries }: Observation, seconds: number): string {
  const again = times.find((at) => at > 0);
  const when = again === undefined ? "" : `, the second one after ${inWords(again)}`;
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
          ? "valid key"
          : "new key";
  const [[, accepted] = [], [from] = [0], [to] = [0]] = changes;
  if (refused === 0)
    return kid === "a" && /^(?:max-age|removed)/.test(history) ? "old key: accepted until the end" : undefined;
  if (refused === tokens) return `${name}: rejected`;
  if (changes.length === 2 && accepted)
    return `${name}: accepted for ${inWords(trustedFor(observation, kid) ?? 0)}, then rejected`;
  if (changes.length === 2) return `${name}: rejected for ${inWords(refusedFor(observation, kid) ?? 0)}`;
  if (changes.length === 3 && accepted)
    return `${name}: rejected for ${inWords(to - from)}, starting after ${inWords(from)}`;
  return `${name}: ${refused} of ${tokens} rejected, alternating with accepted ones`;
}
