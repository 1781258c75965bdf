import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { rotationPolicy } from "../../src/rotation/rules/policy.ts";
import type { ManagerHealth, StoreHealth } from "../../src/rotation/manager/health.ts";
import type { Known, KnownManager } from "../../src/service/admin/known.ts";
import { replicasPart } from "../../src/service/admin/page/tables.ts";
import { statusOf } from "../../src/service/admin/status.ts";
import { day, hour, lease, record, second, start, waiting } from "../rotation/key-records.ts";

const policy = rotationPolicy();
const minute = 60 * second;
const active = record("now", "active", { announcedAt: start - 12 * day, activatedAt: start - 10 * day });
const next = record("next", "announced", { announcedAt: start - hour });
const failure = { at: start - hour, code: "ERR_STORE_UNAVAILABLE", message: "no route to host" };

const health: Omit<ManagerHealth, "store"> = { heldBack: {}, unopened: {}, undestroyed: {} };
const store: StoreHealth = {
  lastAttemptAt: start,
  lastSuccessAt: start,
  revision: 7,
  revisionSince: start - hour,
  loaded: { leases: [lease("self", { publishes: 7 })], now: start, at: start },
};
const own = { id: "self", publishes: 7, signsWith: [] };

type Managed = Partial<Omit<KnownManager, "health">> & {
  readonly health?: Omit<ManagerHealth, "store">;
  readonly store?: StoreHealth;
};

function managed({ health: troubles = health, store: seen = store, ...more }: Managed = {}): Known {
  const base = { policy, records: [active], audit: [], lease: own };
  return known({ manager: { ...base, health: { ...troubles, store: seen }, ...more } });
}

function known(more: Partial<Known> = {}): Known {
  return {
    now: start,
    phase: "running",
    issuer: "https://op.example",
    jwksUri: "https://op.example/jwks",
    pid: 42,
    isShortBySetting: false,
    isShort: false,
    published: [],
    events: [],
    ...more,
  };
}

const because = (known: Known) => statusOf(known).rotationMode.because;
const leases = (...all: ReturnType<typeof lease>[]) => ({ ...store, loaded: { leases: all, now: start, at: start } });

const table: Readonly<Record<string, readonly [Known, ...[string, string][]]>> = {
  "all is well": [managed()],
  "all is well with key files": [known()],
  "the store is out of reach": [managed({ health: { ...health, failure } }), ["ERR_STORE_UNAVAILABLE", "jwksd keys"]],
  "the store is out of reach, and only a look has noticed": [
    managed({ store: { ...store, lastError: { ...failure, at: start + 1 } } }),
    ["ERR_STORE_UNAVAILABLE", "jwksd keys"],
  ],
  "the store was out of reach": [managed({ store: { ...store, lastError: failure } })],
  "the lease has ended": [
    managed({ health: { ...health, failure, fence: { ...failure, at: start } } }),
    ["ERR_STORE_UNAVAILABLE", "jwksd keys"],
    ["REPLICA_FENCED", "jwksd replicas"],
  ],
  "the store was not reached since the start": [
    known({ withoutStore: { savedAt: start, outage: failure }, notReady: "x" }),
    ["ERR_STORE_UNAVAILABLE", "jwksd keys"],
  ],
  "the store is not authentic": [
    managed({ health: { ...health, failure: { ...failure, code: "ERR_STORE_NOT_AUTHENTIC" } } }),
    ["ERR_STORE_NOT_AUTHENTIC", "jwksd keys rewrap --dry-run"],
  ],
  "the wrapping key is missing": [
    managed({ health: { ...health, failure: { ...failure, code: "ERR_WRAPPING_KEY_MISSING" } } }),
    ["ERR_WRAPPING_KEY_MISSING", "jwksd keys"],
  ],
  "new keys are not taken": [
    managed({ health: { ...health, failure: { ...failure, code: "ERR_UPDATE" } } }),
    ["ERR_UPDATE", "jwksd keys"],
  ],
  "the next key cannot sign": [
    managed({
      records: [active, { ...next, privateHalf: { uri: "pkcs11:object=a%20b;id=%01" } }],
      health: { ...health, heldBack: { next: { ...failure, code: "ERR_SIGNER_UNAVAILABLE" } } },
    }),
    ["ERR_SIGNER_UNAVAILABLE", "jwksd signer check 'pkcs11:object=a%20b;id=%01'"],
  ],
  "the active key cannot be opened": [
    managed({ health: { ...health, unopened: { now: { ...failure, code: "ERR_WRAPPED_KEY" } } } }),
    ["ERR_WRAPPED_KEY", "jwksd keys"],
  ],
  "a clock is wrong": [
    managed({ store: { ...store, loaded: { leases: [], now: start + 301 * second, at: start } } }),
    ["CLOCK_DIFFERS", "timedatectl"],
  ],
  "a clock is as wrong as it may be": [
    managed({ store: { ...store, loaded: { leases: [], now: start + 300 * second, at: start } } }),
  ],
  "a step is late": [
    managed({ records: [active, { ...next, publishedAt: start - day - 61 * second }] }),
    ["STEP_OVERDUE", "jwksd plan"],
  ],
  "a step is a little late": [managed({ records: [active, { ...next, publishedAt: start - day - 59 * second }] })],
  "there is no successor": [
    managed({ records: [{ ...active, activatedAt: start - 89 * day - 61 * second }] }),
    ["NO_SUCCESSOR", "jwksd rotate"],
  ],
  "there is no successor of an encryption key": [
    managed({ records: [active, { ...active, kid: "enc", use: "enc", activatedAt: start - 90 * day }] }),
    ["NO_SUCCESSOR", "jwksd keys announce --use enc"],
  ],
  "a step waits": [
    managed({
      records: [active, waiting({ ...next, announcedAt: start - 61 * second })],
      store: { ...leases(lease("old", { publishes: 6 })), revisionSince: start },
    }),
    ["STEP_WAITS", "jwksd replicas"],
  ],
  "a step has just begun to wait": [
    managed({
      records: [active, waiting({ ...next, announcedAt: start - 59 * second })],
      store: { ...leases(lease("old", { publishes: 6 })), revisionSince: start },
    }),
  ],
  "a replica is behind": [
    managed({ store: leases(lease("old", { publishes: 6 })) }),
    ["REPLICA_BEHIND", "jwksd replicas"],
  ],
  "a replica is ahead: the store is an older copy": [
    managed({ store: leases(lease("old", { publishes: 8 })) }),
    ["REPLICA_BEHIND", "jwksd replicas"],
  ],
  "a replica was behind until its lease ended": [
    managed({ store: leases(lease("old", { publishes: 6, until: start })) }),
  ],
  "a removed key is still in its HSM": [
    managed({ health: { ...health, undestroyed: { "-gone": { ...failure, code: "ERR_SIGNER_UNAVAILABLE" } } } }),
    ["ERR_SIGNER_UNAVAILABLE", "jwksd keys destroy '-gone'"],
  ],
  "key files are refused": [
    known({ refused: { ...failure, code: "ERR_KEY_FORMAT" } }),
    ["ERR_KEY_FORMAT", "kill -HUP 42"],
  ],
  "it is not ready for another reason": [
    { ...managed(), notReady: "it does not publish the keys of the store yet" },
    ["NOT_READY", "jwksd replicas"],
  ],
  "it is stopping": [{ ...managed(), phase: "stopping", notReady: "it is stopping" }],
  "errors come before warnings": [
    managed({ health: { ...health, failure }, store: leases(lease("old", { publishes: 8 })) }),
    ["ERR_STORE_UNAVAILABLE", "jwksd keys"],
    ["REPLICA_BEHIND", "jwksd replicas"],
  ],
};

describe("faults, worst first, with a command", () => {
  for (const [name, [known, ...faults]] of Object.entries(table)) {
    test(name, () => {
      const found = statusOf(known).faults;
      assert.deepEqual(
        found.map(({ code, command }) => [code, command]),
        faults,
      );
      for (const { text, remedy, kid } of found) {
        // Of a key that the text names, so that nobody has to take it from there.
        assert.equal(kid, /key "([^"]+)"/.exec(text)?.[1]);
        assert.match(text, /^[A-Z].*[.!?]$/);
        assert.match(remedy, /^[A-Z].*[.:]$/);
      }
    });
  }
});

const marks = (known: Known) => statusOf(known).replicas.map(({ id, isFenced }) => [id, isFenced]);

describe("the status", () => {
  test("says of each key where it stands and what is next", () => {
    const hsm = { ...active, kid: "hsm", use: "enc", privateHalf: { uri: "pkcs11:id=%01" } } as const;
    const { keys, next: nextStep } = statusOf(managed({ records: [active, next, hsm] }));
    assert.deepEqual(
      keys.map(({ kid, state, privateHalf, uri, next }) => [kid, state, privateHalf, uri, next?.kind]),
      [
        ["now", "active", "wrapped in the store", undefined, "retired"],
        ["next", "announced", "wrapped in the store", undefined, "activated"],
        ["hsm", "active", "external", "pkcs11:id=%01", "retired"],
      ],
    );
    assert.deepEqual([nextStep?.kind, nextStep?.kid, nextStep?.at], ["activated", "next", start + 23 * hour]);
    assert.deepEqual(keys[1]?.times, { announcedAt: start - hour, publishedAt: start - hour });
  });

  test("says of each replica what it has told, and of this one what it knows", () => {
    const others = leases(
      lease("self", { publishes: 6, until: start + hour - minute }),
      lease("old", { publishes: 5, until: start + minute }),
      lease("ended", { until: start }),
    );
    const { replicas, revision } = statusOf(managed({ store: others }));
    assert.deepEqual(
      replicas.map(({ id, isSelf, behind, lastSeenAt }) => [id, isSelf, behind, lastSeenAt]),
      [
        ["self", true, 0, start - minute],
        ["old", false, 2, start - 59 * minute],
      ],
    );
    assert.deepEqual(revision, { published: 7, stored: 7 });
  });

  test("says of a replica that has followed which keys drain there, and of one that lags none", () => {
    const old = record("old", "retiring", { announcedAt: start - 20 * day, retiredAt: start });
    const signsWith = [active.kid, "old"];
    const store = leases(lease("self", { signsWith }), lease("lags", { publishes: 6, signsWith: ["old"] }));
    const status = statusOf(managed({ records: [active, old], store }));
    assert.deepEqual(
      status.replicas.map(({ id, drains }) => [id, drains]),
      [
        ["self", ["old"]],
        ["lags", []],
      ],
    );
    const drain = 'old</code> <span class="quiet">replaced, for 30 s at most</span>';
    assert.equal(replicasPart(status).text.replaceAll(/\s+/g, " ").split(drain).length, 2);
  });

  test("marks this replica while it may not sign", () => {
    const fenced = managed({ health: { ...health, fence: failure }, store: leases(lease("self"), lease("other")) });
    assert.deepEqual(marks(fenced), [
      ["self", true],
      ["other", false],
    ]);
    assert.deepEqual(marks(managed()), [["self", false]]);
  });

  test("says of a step that waits since when, and for whom", () => {
    const records = [active, waiting({ ...next, announcedAt: start - minute })];
    const { waits } = statusOf(managed({ records, store: leases(lease("old", { publishes: 6 })) }));
    assert.deepEqual(
      waits.map(({ kid, action, since, replicas }) => [kid, action, since, replicas]),
      [["next", "activated", start - minute, ["old"]]],
    );
  });

  test("is by the clock of the store", () => {
    const ahead = { ...store, loaded: { leases: [], now: start + 100 * second, at: start } };
    const status = statusOf(managed({ store: ahead }));
    assert.equal(status.now, start + 100 * second);
    assert.equal(status.store?.aheadMs, 100 * second);
  });

  test("says why the short cache is on", () => {
    assert.equal(because(managed({ records: [active, next] })), "keys");
    assert.equal(because({ ...managed(), isShortBySetting: true }), "setting");
    assert.equal(because({ ...managed(), isShort: true }), "outage");
    assert.equal(statusOf(managed()).rotationMode.isOn, false);
  });

  test("says of keys from files what is known of them", () => {
    const published = [
      { kid: "b", use: "sig", alg: "ES256" },
      { kid: "a", use: "sig", alg: "ES256" },
      { kid: "e", use: "enc", alg: "ECDH-ES", notAfter: start },
    ] as const;
    const { source, keys, plan } = statusOf(known({ published }));
    assert.deepEqual([source, plan], ["files", undefined]);
    assert.deepEqual(
      keys.map(({ kid, state, privateHalf }) => `${kid} ${state} ${privateHalf}`),
      ["b active not in jwksd", "a published not in jwksd", "e published not in jwksd"],
    );
  });

  test("passes over what is no event in the audit log, which nothing authenticates", () => {
    const event = { number: 1, at: start, type: "announced", kid: "now", use: "sig", reason: "because" } as const;
    const hostile = [{ at: 1e20 }, { at: Number.NaN }, { at: "now" }, { kid: {} }, { reason: null }, { type: 7 }];
    const audit = [...hostile.map((odd) => Object.assign({}, event, odd as object)), event] as (typeof event)[];
    assert.deepEqual(statusOf(managed({ audit })).past, [event]);
  });

  test("is plain JSON without private halves", () => {
    const text = JSON.stringify(statusOf(managed({ records: [active, next] })));
    assert.ok(!text.includes("wrapped now") && !text.includes("wrapped next"));
    const { replicas } = JSON.parse(text) as { replicas: unknown[] };
    assert.equal(replicas.length, 1);
  });
});

test("a replica that signs with no key says why, as far as it is known", () => {
  const rows: readonly [said: Parameters<typeof lease>[1], signing: string, shown: RegExp][] = [
    [{ settings: { signs: true }, publishes: 7, signsWith: ["now"] }, "signs", /<code>now<\/code>/],
    [{ settings: { signs: true }, publishes: 7 }, "fenced", /fenced: it may not sign now/],
    [{ settings: { signs: true }, publishes: 0 }, "joins", /has just joined/],
    [{ settings: { signs: false }, publishes: 7 }, "publishes only", />publishes; it is not set up to sign</],
    [{ settings: {}, publishes: 7 }, "unknown", /signs with nothing/],
  ];
  for (const [said, signing, shown] of rows) {
    const status = statusOf(managed({ store: leases(lease("other", { signsWith: [], ...said })) }));
    assert.equal(status.replicas[0]?.signing, signing);
    assert.match(replicasPart(status).text, shown);
  }
});
