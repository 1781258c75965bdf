import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { runInNewContext } from "node:vm";
import {
  type JwksdError,
  type Provider,
  createProvider,
  localSigner,
  type ProviderEvent,
  type ProviderOptions,
  SignerError,
} from "../../src/index.ts";
import { ecKey } from "../support/keys.ts";
import { valuesOf } from "../support/scrape.ts";
import { settled, simulatedClock } from "../support/simulated.ts";
import { unhandledRejections } from "../support/unhandled.ts";

const keyset = [{ kid: "a", signer: await localSigner(ecKey("a")) }];

async function providerWith(predicate: () => unknown): Promise<{ provider: Provider; warnings: JwksdError[] }> {
  const warnings: JwksdError[] = [];
  const provider = await createProvider({
    issuer: "https://op.example/tenant",
    mountPrefix: "/oidc",
    keyset,
    jwksRotationActive: predicate as () => boolean,
    onWarning: (warning) => warnings.push(warning),
  });
  return { provider, warnings };
}

type Sent = [path: string, init?: RequestInit];

function fetchFrom(provider: Provider, [path, init]: Sent): Response {
  return provider.fetch(new Request(`https://op.example${path}`, init)) as Response;
}

/** Returns the status that the Node adapter writes, without a server. */
function nodeStatus(provider: Provider, [url, init]: Sent): number {
  let status = 0;
  const headers = Object.fromEntries(new Headers(init?.headers));
  class Written {
    readonly headersSent = false;
    setHeader(): void {}
    writeHead(written: number): void {
      status = written;
    }
    end(): void {}
  }
  provider.node({ method: init?.method, url, headers }, new Written());
  return status;
}

const modeOf = (response: Response): string =>
  ({
    "public, max-age=3600, stale-while-revalidate=3600": "long",
    "public, max-age=300, must-revalidate": "rotation",
  })[response.headers.get("cache-control") ?? ""] ?? "neither";

describe("endpoint specification, section 4, rotation cache mode, 2: the predicate is called without arguments, exactly once for each request to the JWKS path and at no other time", () => {
  const any = { headers: { "If-None-Match": "*" } };
  const rows: [calls: 0 | 1, status: number, ...Sent][] = [
    [1, 200, "/tenant/oidc/jwks"],
    [1, 200, "/oidc/jwks"],
    [1, 200, "/jwks"],
    [1, 200, "/jwks?a=b"],
    [1, 200, "/jwks", { method: "HEAD" }],
    [1, 304, "/jwks", any],
    [1, 304, "/jwks", { ...any, method: "HEAD" }],
    [1, 200, "/jwks", { headers: { "If-None-Match": '"a"' } }],
    [1, 405, "/jwks", { method: "POST" }],
    [1, 405, "/jwks", { ...any, method: "DELETE" }],
    [1, 405, "/jwks", { method: "OPTIONS" }],
    [0, 404, "/tenant/jwks"],
    [0, 404, "/"],
    [0, 404, "/x", any],
    [0, 200, "/.well-known/openid-configuration"],
    [0, 304, "/.well-known/openid-configuration", any],
    [0, 405, "/.well-known/openid-configuration", { method: "POST" }],
  ];
  for (const [calls, status, ...sent] of rows) {
    test(`${status} ${JSON.stringify(sent)}`, async () => {
      /** The number of arguments of each call. */
      const called: number[] = [];
      const { provider } = await providerWith((...args: unknown[]) => called.push(args.length) === 0);
      assert.deepEqual(called, []);
      assert.equal(fetchFrom(provider, sent).status, status);
      assert.deepEqual(called, Array(calls).fill(0));
      assert.equal(nodeStatus(provider, sent), status);
      assert.deepEqual(called, Array(2 * calls).fill(0));
    });
  }
});

test("endpoint specification, section 3: the mode is chosen per request", async () => {
  let active = false;
  const { provider } = await providerWith(() => active);
  const seen = [false, true, true, false].map((value) => {
    active = value;
    return modeOf(fetchFrom(provider, ["/jwks"]));
  });
  assert.deepEqual(seen, ["long", "rotation", "rotation", "long"]);
});

const throwing = (thrown: unknown) => (): never => {
  throw thrown;
};
const withMember = (name: string, value: unknown): Error =>
  Object.defineProperty(new Error("inspected"), name, { value });
const withGetter = (name: string): Error =>
  Object.defineProperty(new Error("inspected"), name, { get: throwing("a getter") });
const revoked = (): object => {
  const { proxy, revoke } = Proxy.revocable({}, {});
  revoke();
  return proxy;
};

describe("a predicate that fails selects rotation mode, and is reported once per distinct failure", () => {
  let turn = 0;
  const rows: [name: string, predicate: () => unknown, reports: RegExp[]][] = [
    ["throws", () => assert.fail("broken"), [/threw AssertionError: broken/]],
    ["throws a value that is not an error", throwing("broken"), [/threw string/]],
    ["throws an error whose message is a symbol", throwing(withMember("message", Symbol("x"))), [/threw object/]],
    [
      "throws an error whose name cannot be converted to a string",
      throwing(withMember("name", Object.create(null))),
      [/threw object/],
    ],
    ["throws an error whose message throws", throwing(withGetter("message")), [/threw object/]],
    ["throws an object without a prototype", throwing(Object.create(null)), [/threw object/]],
    ["throws a revoked proxy", throwing(revoked()), [/threw object/]],
    ["throws a symbol", throwing(Symbol("x")), [/threw symbol/]],
    ["returns nothing", () => {}, [/returned undefined/]],
    ["returns null", () => null, [/not a boolean/]],
    ["returns 1", () => 1, [/returned number/]],
    ["returns a string", () => "false", [/returned string/]],
    ["returns a Boolean object", () => Object(false), [/returned object/]],
    ["returns a promise", () => Promise.resolve(false), [/returned a promise/]],
    ["returns a promise that rejects", () => Promise.reject(new Error("broken")), [/returned a promise/]],
    [
      "returns a promise from another realm that rejects",
      () => runInNewContext("Promise.reject(1)"),
      [/returned object/],
    ],
    // oxlint-disable-next-line unicorn/no-thenable
    ["returns a thenable that rejects", () => ({ then: throwing("broken") }), [/returned object/]],
    ["returns an object that throws when it is inspected", () => withGetter("then"), [/returned Error: inspected/]],
    ["returns a revoked proxy", revoked, [/returned object/]],
    [
      "fails in two ways, in turn",
      () => {
        turn += 1;
        return turn % 2 === 0 ? 0 : assert.fail("broken");
      },
      [/threw/, /returned number/],
    ],
  ];
  for (const [name, predicate, reports] of rows) {
    test(name, async () => {
      const unhandled = unhandledRejections();
      const { provider, warnings } = await providerWith(predicate);
      for (let i = 0; i < 5; i += 1) {
        const response = fetchFrom(provider, ["/jwks"]);
        assert.deepEqual([response.status, modeOf(response)], [200, "rotation"]);
      }
      assert.equal(warnings.length, reports.length);
      for (const [index, report] of reports.entries()) {
        assert.equal(warnings[index]?.code, "ERR_PREDICATE");
        assert.match(warnings[index]?.message ?? "", report);
      }
      assert.deepEqual(await unhandled(), []);
    });
  }
});

test("failures are reported only a limited number of times, even if each one is different", async () => {
  let count = 0;
  const { provider, warnings } = await providerWith(() => {
    count += 1;
    throw new Error(`failure ${count}`);
  });
  for (let i = 0; i < 1_000; i += 1) fetchFrom(provider, ["/jwks"]);
  assert.ok(warnings.length >= 10 && warnings.length <= 200, `${warnings.length} reports`);
});

describe("a failing onWarning neither fails the response nor ends the process", () => {
  const rows: [name: string, onWarning: () => unknown][] = [
    ["throws", () => assert.fail("also broken")],
    ["rejects", () => Promise.reject(new Error("also broken"))],
  ];
  for (const [name, onWarning] of rows) {
    test(name, async () => {
      const unhandled = unhandledRejections();
      const provider = await createProvider({
        issuer: "https://op.example",
        keyset,
        jwksRotationActive: () => assert.fail("broken"),
        onWarning,
      });
      assert.equal(modeOf(fetchFrom(provider, ["/jwks"])), "rotation");
      assert.deepEqual(await unhandled(), []);
    });
  }
});

const issuer = "https://op.example";
const signer = await localSigner(ecKey("a"));
const provide = (options: ProviderOptions = {}): Promise<Provider> =>
  createProvider({ issuer, keyset: [{ kid: "a", signer }], ...options });

describe("responses", () => {
  test("are counted by document and status code", async () => {
    const provider = await provide();
    const discovery = `${issuer}/.well-known/openid-configuration`;
    const ask = (url: string, init?: RequestInit) => provider.fetch(new Request(url, init)) as Response;
    ask(provider.jwksUri);
    const etag = ask(provider.jwksUri).headers.get("etag") ?? "";
    ask(provider.jwksUri, { headers: { "If-None-Match": etag } });
    ask(provider.jwksUri, { method: "HEAD" });
    ask(provider.jwksUri, { method: "POST" });
    ask(discovery);
    ask(`${issuer}/forged-path?forged`);
    assert.deepEqual(valuesOf(provider, "jwksd_responses_total"), {
      '{document="jwks",code="200"}': 3,
      '{document="jwks",code="304"}': 1,
      '{document="jwks",code="405"}': 1,
      '{document="discovery",code="200"}': 1,
      '{document="discovery",code="304"}': 0,
      '{document="none",code="404"}': 1,
    });
    assert.ok(!JSON.stringify(provider.metrics()).includes("forged"));
  });

  test("from another handler are not counted", async () => {
    const provider = await provide();
    let passed = 0;
    provider.node({ url: "/other", headers: {} }, {} as never, () => (passed += 1));
    assert.equal(passed, 1);
    assert.ok(!('{document="none",code="404"}' in valuesOf(provider, "jwksd_responses_total")));
  });
});

describe("signatures", () => {
  const claims = [{ sub: "u" }, { lifetimeSeconds: 60 }] as const;
  const total = "jwksd_signatures_total";

  test("are counted by key and result, and timed", async () => {
    const clock = simulatedClock();
    const failures = new Map<string, SignerError>();
    let takesMs = 30;
    const external = {
      publicKey: signer.publicKey,
      async sign(...args: Parameters<typeof signer.sign>) {
        await new Promise<void>((resolve) => clock.setTimer(resolve, takesMs));
        const failure = failures.get("a");
        if (failure !== undefined) throw failure;
        return signer.sign(...args);
      },
    };
    const events: ProviderEvent[] = [];
    const provider = await provide({
      keyset: [{ kid: "a", signer: external }],
      clock,
      signerLimits: { maxConcurrent: 1 },
      onEvent: (event) => events.push(event),
    });
    const signing = [provider.sign(...claims), provider.sign(...claims)];
    await settled();
    assert.deepEqual(valuesOf(provider, "jwksd_signatures_queued"), { '{kid="a"}': 1 });
    await clock.advance(30);
    await clock.advance(30);
    await Promise.all(signing);
    assert.deepEqual(valuesOf(provider, "jwksd_signatures_queued"), { '{kid="a"}': 0 });

    const failure = new SignerError("ERR_SIGNER_THROTTLED", "later");
    failures.set("a", failure);
    takesMs = 2_000;
    const refused = assert.rejects(provider.sign(...claims), failure);
    await settled();
    await clock.advance(2_000);
    await refused;
    assert.deepEqual(valuesOf(provider, total), {
      '{kid="a",result="ok"}': 2,
      '{kid="a",result="ERR_SIGNER_THROTTLED"}': 1,
    });
    assert.deepEqual(events, [{ type: "signature-failed", kid: "a", error: failure }]);

    const name = "jwksd_signature_duration_seconds";
    const bucket = (le: string): number | undefined => valuesOf(provider, `${name}_bucket`)[`{le="${le}",kid="a"}`];
    assert.deepEqual(["0.025", "0.05", "0.1", "1", "2.5", "+Inf"].map(bucket), [0, 1, 2, 2, 2, 2]);
    assert.deepEqual(valuesOf(provider, `${name}_count`), { '{kid="a"}': 2 });
    assert.ok(Math.abs((valuesOf(provider, `${name}_sum`)['{kid="a"}'] ?? 0) - 0.09) < 1e-9);
  });

  test("made with a removed key are no longer reported; if the key returns, its signatures are counted from zero", async () => {
    const provider = await provide();
    const other = await localSigner(ecKey("b"));
    await provider.sign(...claims);
    await provider.update({ keyset: [{ kid: "b", signer: other }] });
    await provider.sign(...claims);
    assert.deepEqual(valuesOf(provider, total), { '{kid="b",result="ok"}': 1 });
    await provider.update({ keyset: [{ kid: "a", signer }] });
    await provider.sign(...claims);
    assert.deepEqual(valuesOf(provider, total), { '{kid="a",result="ok"}': 1 });
  });
});

describe("a provider's events", () => {
  test("report an update and a refused update", async () => {
    const events: ProviderEvent[] = [];
    const provider = await provide({ onEvent: (event) => events.push(event) });
    await provider.update({ keyset: [{ kid: "b", signer }] });
    await assert.rejects(provider.update({ keyset: [] }), { code: "ERR_KEYSET_EMPTY" });
    await settled();
    const [updated, refused] = events;
    assert.deepEqual(updated, { type: "updated", kids: ["b"] });
    assert.equal(refused?.type === "refused" && refused.error.code, "ERR_KEYSET_EMPTY");
    assert.equal(events.length, 2);
  });
});
