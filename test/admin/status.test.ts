import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFile } from "node:fs/promises";
import { describe, test } from "node:test";
import { shellWord } from "../../src/base/printable.ts";
import type { StoreDocument } from "../../src/rotation/custody/document.ts";
import type { KeyManagerHealth, StoreHealth } from "../../src/rotation/manager/types.ts";
import type { KeyRecord } from "../../src/rotation/rules/key-records.ts";
import { replicasPart } from "../../src/service/admin/page/tables.ts";
import { guideUrl, remedyOf } from "../../src/service/admin/remedies.ts";
import type { ServiceSnapshot } from "../../src/service/admin/service-snapshot.ts";
import { statusOf } from "../../src/service/admin/status.ts";
import { variableName } from "../../src/service/config/setting-definitions.ts";
import { resolveSettings } from "../../src/service/config/settings.ts";
import { storeSettingsOf } from "../../src/service/config/store-settings.ts";
import type { ManagerSnapshot } from "../../src/service/keys/store-keys.ts";
import { day, hour, record, second, start, waiting } from "../rules/key-records.ts";
import { known, presenceRecord, storeDocument } from "../support/store-view.ts";

const minute = 60 * second;
const active = record("now", "active", { announcedAt: start - 12 * day, activatedAt: start - 10 * day });
const next = record("next", "announced", { announcedAt: start - hour });
const failure = { at: start - hour, code: "ERR_STORE_UNAVAILABLE", message: "no route to host" };

const health: Omit<KeyManagerHealth, "store"> = { activationBlocked: {}, unavailable: {}, destroyFailed: {} };
const store: StoreHealth = {
  lastAttemptAt: start,
  lastSuccessAt: start,
  revision: 5,
  revisionSince: start - hour,
};

type Managed = Partial<Omit<ManagerSnapshot, "health" | "document">> & {
  readonly records?: readonly KeyRecord[];
  readonly document?: Partial<StoreDocument>;
  readonly health?: Omit<KeyManagerHealth, "store">;
  readonly store?: StoreHealth;
};

function managed({
  records = [active],
  document,
  health: managerHealth = health,
  store: storeHealth = store,
  ...more
}: Managed = {}): ServiceSnapshot {
  return known({
    manager: {
      id: "self",
      document: storeDocument(records, document),
      policyGiven: {},
      processes: [presenceRecord("self")],
      unread: 0,
      clockAheadMs: 0,
      health: { ...managerHealth, store: storeHealth },
      ...more,
    },
  });
}

const modeReason = (known: ServiceSnapshot) => statusOf(known).rotationMode.because;
const targets = [{ name: "web", revision: 4, at: start - 2 * hour }];

const table: Readonly<Record<string, readonly [ServiceSnapshot, ...[string, string][]]>> = {
  "there is no fault": [managed()],
  "there is no fault with key files": [known()],
  "the store is unreachable": [managed({ health: { ...health, failure } }), ["ERR_STORE_UNAVAILABLE", "jwksd keys"]],
  "the store is unreachable, and only a poll has noticed": [
    managed({ store: { ...store, lastError: { ...failure, at: start + 1 } } }),
    ["ERR_STORE_UNAVAILABLE", "jwksd keys"],
  ],
  "the store was unreachable": [managed({ store: { ...store, lastError: failure } })],
  "the process is stale": [
    managed({ health: { ...health, failure, stale: { ...failure, code: "ERR_SIGNER_STALE" } } }),
    ["ERR_STORE_UNAVAILABLE", "jwksd keys"],
    ["ERR_SIGNER_STALE", "jwksd replicas"],
  ],
  "commands find the store of this service": [
    { ...managed({ health: { ...health, failure } }), commandFlags: "--data /srv/keys" },
    ["ERR_STORE_UNAVAILABLE", "jwksd keys --data /srv/keys"],
  ],
  "a step is due, and this process can only read": [
    managed({ health: { ...health, failure: { ...failure, code: "ERR_STORE_READ_ONLY" } } }),
    ["ERR_STORE_READ_ONLY", "jwksd replicas"],
  ],
  "the settings differ from the store's policy": [
    managed({ policyGiven: { announceForSeconds: 90_000, rotateEveryDays: 90 } }),
    ["POLICY_DIFFERS", "jwksd policy --announce-for-seconds 90000"],
  ],
  "the store is nearly full": [
    managed({ store: { ...store, filling: { bytes: 50_000, maxBytes: 65_535 } } }),
    ["STORE_FILLING", "jwksd keys --all"],
  ],
  "the store has not been reached since startup": [
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
  "new keys cannot be published": [
    managed({ health: { ...health, failure: { ...failure, code: "ERR_UPDATE" } } }),
    ["ERR_UPDATE", "jwksd keys"],
  ],
  "the next key cannot sign": [
    managed({
      records: [active, { ...next, privateHalf: { uri: "pkcs11:object=a%20b;id=%01" } }],
      health: { ...health, activationBlocked: { next: { ...failure, code: "ERR_SIGNER_UNAVAILABLE" } } },
    }),
    ["ERR_SIGNER_UNAVAILABLE", "jwksd signer check 'pkcs11:object=a%20b;id=%01'"],
  ],
  "the active key cannot be opened": [
    managed({ health: { ...health, unavailable: { now: { ...failure, code: "ERR_WRAPPED_KEY" } } } }),
    ["ERR_WRAPPED_KEY", "jwksd keys"],
  ],
  "a clock is wrong": [managed({ clockAheadMs: 301 * second }), ["CLOCK_SKEW", "timedatectl"]],
  "a clock is at the limit of the allowed difference": [managed({ clockAheadMs: 300 * second })],
  "a step is late": [
    managed({ records: [active, { ...next, publishedAt: start - day - 61 * second }] }),
    ["STEP_OVERDUE", "jwksd plan"],
  ],
  "a step is a little late": [managed({ records: [active, { ...next, publishedAt: start - day - 59 * second }] })],
  "there is no successor": [
    managed({ records: [{ ...active, activatedAt: start - 89 * day - 61 * second }] }),
    ["NO_SUCCESSOR", "jwksd rotate"],
  ],
  "an encryption key has no successor": [
    managed({ records: [active, { ...active, kid: "enc", use: "enc", activatedAt: start - 90 * day }] }),
    ["NO_SUCCESSOR", "jwksd keys announce --use enc"],
  ],
  "a step waits for a target": [
    managed({
      records: [active, waiting({ ...next, announcedAt: start - 61 * second, stateRevision: 5 })],
      document: { targets },
    }),
    ["STEP_BLOCKED", "jwksd replicas"],
  ],
  "a step has only just begun to wait for a target": [
    managed({
      records: [active, waiting({ ...next, announcedAt: start - 59 * second, stateRevision: 5 })],
      document: { targets },
    }),
  ],
  "a replica is behind": [
    managed({ processes: [presenceRecord("old", { revision: 4 })] }),
    ["REPLICA_BEHIND", "jwksd replicas"],
  ],
  "a replica is behind only briefly": [
    managed({ processes: [presenceRecord("old", { revision: 4 })], store: { ...store, revisionSince: start } }),
  ],
  "a replica is ahead because the store contains an older backup": [
    managed({ processes: [presenceRecord("old", { revision: 6 })] }),
    ["REPLICA_BEHIND", "jwksd replicas"],
  ],
  "a removed key is still in its HSM": [
    managed({ health: { ...health, destroyFailed: { "-gone": { ...failure, code: "ERR_SIGNER_UNAVAILABLE" } } } }),
    ["ERR_SIGNER_UNAVAILABLE", "jwksd keys destroy '-gone'"],
  ],
  "key files are refused": [
    known({ refused: { ...failure, code: "ERR_KEY_FORMAT" } }),
    ["ERR_KEY_FORMAT", "kill -HUP 42"],
  ],
  "the service is not ready for another reason": [
    { ...managed(), notReady: "it has not published the store's latest keys yet" },
    ["NOT_READY", "jwksd replicas"],
  ],
  "the service is stopping": [{ ...managed(), phase: "stopping", notReady: "it is stopping" }],
  "errors come before warnings": [
    managed({ health: { ...health, failure }, processes: [presenceRecord("old", { revision: 4 })] }),
    ["ERR_STORE_UNAVAILABLE", "jwksd keys"],
    ["REPLICA_BEHIND", "jwksd replicas"],
  ],
};

describe("lists faults, worst first, each with a command", () => {
  for (const [name, [known, ...faults]] of Object.entries(table)) {
    test(name, () => {
      const found = statusOf(known).faults;
      assert.deepEqual(
        found.map(({ code, command }) => [code, command]),
        faults,
      );
      for (const { text, remedy, kid } of found) {
        // The key that the text names, so that no caller has to parse it.
        assert.equal(kid, /key "([^"]+)"/.exec(text)?.[1]);
        assert.match(text, /^[A-Z].*[.!?]$/);
        assert.match(remedy, /^[A-Z].*[.:]$/);
      }
    });
  }
});

describe("the status", () => {
  test("reports each key's state, where its private key is kept, and its next step", () => {
    const hsm = { ...active, kid: "hsm", use: "enc", privateHalf: { uri: "pkcs11:id=%01" } } as const;
    const { keys, next: nextStep } = statusOf(managed({ records: [active, next, hsm] }));
    assert.deepEqual(
      keys.map(({ kid, state, privateHalf, uri, next }) => [kid, state, privateHalf, uri, next?.action]),
      [
        ["now", "active", "wrapped in the store", undefined, "retired"],
        ["next", "announced", "wrapped in the store", undefined, "activated"],
        ["hsm", "active", "external", "pkcs11:id=%01", "retired"],
      ],
    );
    assert.deepEqual([nextStep?.action, nextStep?.kid, nextStep?.at], ["activated", "next", start + 23 * hour]);
  });

  test("reports each process's presence record and whether this process is stale", () => {
    const processes = [presenceRecord("self", { at: start - minute }), presenceRecord("old", { revision: 4 })];
    const stale = { ...health, stale: failure };
    const { replicas, revision } = statusOf(managed({ processes, health: stale, store: { ...store, revision: 6 } }));
    assert.deepEqual(
      replicas.map(({ id, isSelf, isStale, behind, lastCheckInAt }) => [id, isSelf, isStale, behind, lastCheckInAt]),
      [
        ["self", true, true, 0, start - minute],
        ["old", false, false, 1, start],
      ],
    );
    assert.deepEqual(revision, { published: 5, stored: 6 });
    assert.equal(statusOf(managed()).replicas[0]?.isStale, false);
  });

  test("reports how long a step has been waiting and which targets it is waiting for", () => {
    const records = [active, waiting({ ...next, announcedAt: start - minute, stateRevision: 5 })];
    const status = statusOf(managed({ records, document: { targets } }));
    assert.deepEqual(
      status.waits.map(({ kid, action, since, targets }) => [kid, action, since, targets]),
      [["next", "activated", start - minute, ["web"]]],
    );
    assert.match(replicasPart(status).text, /web[^]*behind[^]*2 h ago/);
  });

  test("uses the store's clock", () => {
    const status = statusOf(managed({ clockAheadMs: 100 * second }));
    assert.equal(status.now, start + 100 * second);
    assert.equal(status.store?.aheadMs, 100 * second);
  });

  test("says why the short Cache-Control is in effect", () => {
    assert.equal(modeReason(managed({ records: [active, next] })), "keys");
    assert.equal(modeReason({ ...managed(), isShortBySetting: true }), "setting");
    assert.equal(modeReason({ ...managed(), isShort: true }), "outage");
    assert.equal(statusOf(managed()).rotationMode.isOn, false);
  });

  test("reports keys from files", () => {
    const published = [
      { jwk: { kid: "b", use: "sig", alg: "ES256" }, notAfter: Infinity },
      { jwk: { kid: "a", use: "sig", alg: "ES256" }, notAfter: Infinity },
      { jwk: { kid: "e", use: "enc", alg: "ECDH-ES" }, notAfter: start },
    ] as unknown as ServiceSnapshot["published"];
    const { source, keys, plan } = statusOf(known({ published }));
    assert.deepEqual([source, plan], ["files", undefined]);
    assert.deepEqual(
      keys.map(({ kid, state, privateHalf }) => `${kid} ${state} ${privateHalf}`),
      ["b active not in jwksd", "a published not in jwksd", "e published not in jwksd"],
    );
  });

  test("lists the store's latest events first", () => {
    const event = { number: 1, at: start, type: "announced", kid: "now", use: "sig", reason: "because" } as const;
    const events = [event, { number: 2, at: start, type: "policy", reason: "another" } as const];
    assert.deepEqual(
      statusOf(managed({ document: { events } })).past.map(({ type }) => type),
      ["policy", "announced"],
    );
  });

  test("is plain JSON without private keys", () => {
    const text = JSON.stringify(statusOf(managed({ records: [active, next] })));
    assert.ok(!text.includes("wrapped now") && !text.includes("wrapped next"));
    const { replicas } = JSON.parse(text) as { replicas: unknown[] };
    assert.equal(replicas.length, 1);
  });
});

test("the page explains why a process is not signing", () => {
  const rows: readonly [presence: Parameters<typeof presenceRecord>[1], markup: RegExp][] = [
    [{ kid: "now" }, /<code>now<\/code>/],
    [{ kid: undefined }, />not signing at the moment; its log and \/readyz say why</],
    [{ kid: undefined, signs: false }, />publishes only; it is not set up to sign</],
  ];
  for (const [presence, markup] of rows) {
    assert.match(replicasPart(statusOf(managed({ processes: [presenceRecord("other", presence)] }))).text, markup);
  }
});

test("shellWord quotes any string for a shell", () => {
  const texts = [
    "plain-1",
    "-rf",
    "a b",
    "it's",
    "$(touch x)",
    "`id`",
    "a;b|c&d>e",
    '"',
    "\\",
    "~",
    "a\nb",
    "käse",
    "*",
    "!!",
  ];
  const printed = execFileSync("sh", ["-c", `printf '%s\\0' ${texts.map(shellWord).join(" ")}`], { encoding: "utf8" });
  assert.deepEqual(printed.split("\0").slice(0, -1), texts);
  assert.deepEqual(["plain-1", "pkcs11:a=b"].map(shellWord), ["plain-1", "pkcs11:a=b"]);
});

test("the guide for a store error depends on the error's code", () => {
  const codes = ["ERR_STORE_EMPTY", "ERR_RECORDS_INVALID", "ERR_STORE_NOT_AUTHENTIC", "ERR_WRAPPING_KEY_MISSING"];
  assert.deepEqual(
    codes.map((code) => remedyOf(code).guide),
    ["a-lost-store", "a-lost-store", "a-store-that-is-not-authentic", "a-lost-wrapping-key"].map(
      (section) => `emergencies.md#${section}`,
    ),
  );
});

test("every docs section linked from a fault exists", async () => {
  const sources = ["remedies", "faults"].map((name) => readFile(`src/service/admin/${name}.ts`, "utf8"));
  const guides = [...(await Promise.all(sources)).join("\n").matchAll(/guide: "([^"]+)"/g)];
  assert.ok(guides.length > 10);
  for (const [, guide = ""] of guides) {
    const [page = "", section] = guide.split("#");
    const text = await readFile(`docs/${page}`, "utf8");
    const headings = [...text.matchAll(/^#+ (.+)$/gm)].map(([, title = ""]) =>
      title.toLowerCase().replaceAll(" ", "-"),
    );
    assert.ok(section === undefined || headings.includes(section), guide);
    assert.ok(URL.canParse(guideUrl(guide)));
  }
});

test("commands on the page contain the flags that locate the service's store, but never a password", async () => {
  const rows = [
    [{ data: "/srv/my keys" }, "--data '/srv/my keys'"],
    [{ store: "sqlite:/srv/k.db", wrappingKeyFile: "/w" }, "--store sqlite:/srv/k.db --wrapping-key-file /w"],
    [{ store: "postgres://u@h/d", issuer: "https://a.example" }, "--store postgres://u@h/d --issuer https://a.example"],
    [{ store: "postgres://u:secret@h/d", issuer: "https://a.example" }, "--issuer https://a.example"],
  ] as const;
  for (const [given, flags] of rows) {
    const environment = Object.fromEntries(Object.entries(given).map(([name, value]) => [variableName(name), value]));
    assert.equal(storeSettingsOf(await resolveSettings({ flags: {}, environment })).commandFlags, flags);
  }
});
