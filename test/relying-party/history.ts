import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type Script, delayed, hanging, reply, served, settled, unreachable } from "../support/simulated.ts";
import { type VerifierOptions, isPending, outcome, verifierOf } from "./setup.ts";

/*
 * A history of a key set, written as text. Steps are separated by line breaks and semicolons:
 *
 *   with maxWaitMs=0             options; optional first step
 *   knows a b | max-age=60       the origin serves these kids with this Cache-Control, and the set has fetched them; optional next step
 *   serves a | max-age=60 | ETag: "1"        the origin's behavior from now on, with header fields
 *   unreachable; hanging; 503 | Retry-After: 5; NAME      other behaviors; NAME is a script of the table
 *   slowly 2s serves a           like `serves a`, with responses that take 2 s
 *   serves a // serves b         a cache, and the origin behind it, which receives requests that bypass caches
 *   @/other serves a; @config 404; names /other           behavior at another path; of the discovery document; the path that the document names
 *   +60s; clock -1y              lets time pass; sets the clock
 *   a = a; b = unknown           looks up a kid; expects its key, or an error
 *   3 new = unknown; 100 * a = a             three new kids, one at a time; a hundred concurrent calls
 *   a = waits; still waits; got a            the call is pending; it still is; the oldest pending call has this result
 *   each 1s for 60s: a = a & b = later       repeats steps
 *   refresh = ok; close
 *   sent 2; sent 2 config; sent plain past "1"; sent at 0 1 3         requests since the last such step: the number of all; of one kind; each
 *                                request: plain, bypassing caches, with an ETag, or at a path; their times in seconds
 *   events changed refreshed; timers 0       events since the last such step; timers that run
 */

const errors: Readonly<Record<string, string>> = {
  unknown: "ERR_TOKEN_KID_UNKNOWN",
  failed: "ERR_FETCH_FAILED",
  timeout: "ERR_FETCH_TIMEOUT",
  status: "ERR_FETCH_STATUS",
  redirect: "ERR_FETCH_REDIRECT",
  body: "ERR_FETCH_BODY",
  large: "ERR_FETCH_TOO_LARGE",
  outdated: "ERR_FETCH_OUTDATED",
  later: "ERR_KEYS_RETRY_LATER",
  closed: "ERR_CLOSED",
  issuer: "ERR_DISCOVERY_ISSUER",
  insecure: "ERR_URL_INSECURE",
};

const units = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000, y: 365 * 86_400_000 } as const;

function msOf(text: string): number {
  const [, number, unit] = /^([+-]?[\d.]+)(ms|[smhdy])$/.exec(text) ?? assert.fail(`not a time: ${text}`);
  return Math.round(Number(number) * units[unit as keyof typeof units]);
}

/** Asserts that a result is one of the expected ones, which `|` separates. */
function expectOne(answer: string, expect: string, step: string): void {
  const wanted = expect.split("|").map((one) => errors[one] ?? one);
  assert.ok(wanted.includes(answer), `${step}: ${answer}`);
}

export type Scripts = Readonly<Record<string, Script>>;

const plain: Scripts = { unreachable, hanging, html: reply(200, "<html>"), "no set": reply(200, "{}") };

/** Returns the script that a step describes. */
function scriptOf(text: string, named: Scripts): Script | undefined {
  const [, pause, rest] = /^slowly (\S+) (.+)$/.exec(text) ?? [];
  if (pause !== undefined) return delayed(msOf(pause), scriptOf(rest as string, named) ?? assert.fail(text));
  const [cache = "", origin] = text.split(" // ");
  if (origin !== undefined) {
    const [near, far] = [scriptOf(cache, named), scriptOf(origin, named)] as [Script, Script];
    return (request, clock) => (request.headers["cache-control"] === "no-cache" ? far : near)(request, clock);
  }
  const [what = "", ...fields] = text.split(" | ");
  const headers = Object.fromEntries(
    fields.map((field) => {
      const [, name = "Cache-Control", value] = /^(?:([A-Z][\w-]*): )?(.*)$/.exec(field) as string[];
      return [name, value as string];
    }),
  );
  const [, kids] = /^serves((?: \S+)*)$/.exec(what) ?? [];
  if (kids !== undefined) return served(kids.split(" ").slice(1), headers);
  return /^\d{3}$/.test(what) ? reply(Number(what), null, headers) : (named[what] ?? plain[what]);
}

/** Returns options. Their values become numbers if they can. */
const optionsOf = (text: string): VerifierOptions =>
  Object.fromEntries(
    Array.from(text.matchAll(/(\w+)=(\S+)/g), ([, name, value]) => [
      name,
      Number.isNaN(Number(value)) ? value : Number(value),
    ]),
  );

const configuration = "/.well-known/openid-configuration";

const pathOf = (url: string): string => new URL(url).pathname;

async function run(text: string, named: Scripts): Promise<void> {
  const steps = text.split(/[;\n]/).flatMap((step) => step.trim() || []);
  const options = optionsOf(steps[0]?.startsWith("with ") ? (steps.shift() as string) : "");
  const { issuer = "https://op.example" } = options;

  const names = (path: string): Script =>
    reply(200, JSON.stringify({ issuer, jwks_uri: `${issuer}${path}` }), { "Content-Type": "application/json" });
  const routes = new Map<string, Script>([[configuration, names("/jwks")]]);
  const verifier = verifierOf(
    (request, clock) => (routes.get(pathOf(request.url)) ?? reply(404))(request, clock),
    options,
  );
  const { keys, clock, origin, takeEventTypes } = verifier;

  let count = 0;
  const waiting: Promise<string>[] = [];
  const ask = (kid: string): Promise<string> => verifier.ask(kid === "new" ? `made up ${(count += 1)}` : kid);

  /** `[3 | 3 *] KID = EXPECT`, or `refresh = EXPECT`. */
  async function expectAnswer(step: string): Promise<boolean> {
    const [, times = "1", isConcurrent, kid = "", expect = ""] = /^(?:(\d+) (\* )?)?(\S+) = (.+)$/.exec(step) ?? [];
    if (expect === "") return false;
    const once = (): Promise<string> => (kid === "refresh" ? outcome(() => keys.refresh().then(() => "ok")) : ask(kid));
    const calls: Promise<string>[] = [];
    for (let time = 0; time < Number(times); time += 1) {
      calls.push(once());
      if (expect !== "waits" && isConcurrent === undefined) await calls.at(-1);
    }
    if (expect === "waits") {
      await settled();
      for (const each of calls) assert.ok(await isPending(each), step);
      waiting.push(...calls);
    } else for (const answer of await Promise.all(calls)) expectOne(answer, expect, step);
    return true;
  }

  let startMs = clock.now();
  async function take(step: string): Promise<void> {
    const [word = "", ...rest] = step.split(" ");
    const argument = rest.join(" ");
    const [, path = "/jwks", does = ""] = /^(?:@(\S+) )?(.*)$/.exec(step) as string[];
    const [, every, during, repeated = ""] = /^each (\S+) for (\S+): (.*)$/.exec(step) ?? [];
    if (every !== undefined) {
      for (let ms = 0; ms < msOf(during as string); ms += msOf(every)) {
        for (const each of repeated.split(" & ")) await take(each);
        await clock.advance(msOf(every));
      }
    } else if (await expectAnswer(step)) return;
    else if (/^(\d+ \* )?got /.test(step)) {
      const [, times = "1", expect = ""] = /^(?:(\d+) \* )?got (.+)$/.exec(step) ?? [];
      for (const call of waiting.splice(0, Number(times))) expectOne(await call, expect, step);
    } else if (step.startsWith("+")) await clock.advance(msOf(step));
    else if (word === "clock") clock.setBy(msOf(argument));
    else if (word === "knows") {
      await take(step.replace("knows", "serves"));
      await keys.refresh();
      origin.requests.length = 0;
      takeEventTypes();
      startMs = clock.now();
    } else if (word === "names") routes.set(configuration, names(argument));
    else if (word === "close") keys.close();
    else if (step === "still waits") {
      await settled();
      assert.ok(await isPending(waiting[0] as Promise<string>), step);
    } else if (word === "timers") {
      await settled();
      assert.equal(clock.timers, Number(argument));
    } else if (word === "events") {
      await settled();
      assert.deepEqual(takeEventTypes(), rest);
    } else if (word === "sent") {
      await settled();
      const requests = origin.requests.splice(0);
      if (rest[0] === "at") {
        const at = requests.map(({ atMs }) => String((atMs - startMs) / 1000));
        return assert.deepEqual(at, rest.slice(1));
      }
      const how = requests.map(({ url, headers }) => [
        pathOf(url).replace(configuration, "config"),
        headers["cache-control"] === "no-cache" ? "past" : (headers["if-none-match"] ?? "plain"),
      ]);
      const [, wanted, place] = /^(\d+) (\S+)$/.exec(argument) ?? [];
      if (wanted !== undefined)
        return assert.equal(how.filter((parts) => parts.includes(place as string)).length, Number(wanted), step);
      if (/^\d+$/.test(argument)) return assert.equal(how.length, Number(argument), step);
      const fit = how.map((parts, index) => (rest[index] ?? "").split("+").every((part) => parts.includes(part)));
      assert.ok(how.length === rest.length && !fit.includes(false), `${step}: ${JSON.stringify(how)}`);
    } else {
      const script = scriptOf(does, named) ?? assert.fail(`not a step: ${step}`);
      routes.set(path === "config" ? configuration : path, script);
    }
  }
  for (const step of steps) await take(step);
  assert.equal(waiting.length, 0, "every pending call must have an expected result");
}

/** Defines a test for each history. `first` is the start of each; `named` are additional scripts. */
export function histories(
  title: string,
  rows: Readonly<Record<string, string>>,
  first = "",
  named: Scripts = {},
): void {
  describe(title, () => {
    for (const [name, text] of Object.entries(rows)) test(name, () => run(`${first}\n${text}`, named));
  });
}
