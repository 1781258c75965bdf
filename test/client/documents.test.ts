import assert from "node:assert/strict";
import { describe, test } from "node:test";
import {
  type ClientDocumentState,
  type ResolvedClient,
  createClientDocuments,
  memoryReplayStore,
} from "../../src/index.ts";
import { ecKey } from "../support/keys.ts";
import {
  type Script,
  delayed,
  entry,
  hanging,
  reply,
  routed,
  served,
  settled,
  simulatedClock,
  unreachable,
} from "../support/simulated.ts";
import { compact, signature, verdict } from "../token/compact.ts";
import { issuer, verifier } from "./client.ts";
import {
  assertionAt,
  confidentialDocument,
  documentReply,
  documentUrl,
  documented,
  publicDocument,
} from "./documented.ts";

const { jwks_uri: jwksUri } = confidentialDocument;

/** Responds to each identifier with its own public document. */
const anyDocument: Script = (request, clock) =>
  documentReply({ ...publicDocument, client_id: request.url })(request, clock);

/** Responds with a document and the keys that it names. */
const hostedClient = (kids: readonly string[], document: object = confidentialDocument): Script =>
  routed({ [documentUrl]: documentReply(document), [jwksUri]: served(kids) });

/** Responds to each identifier with a document that names the same keys. */
const sharedKeys =
  (kids: readonly string[]): Script =>
  (request, clock) => {
    const document = { ...confidentialDocument, client_id: request.url };
    return (request.url === jwksUri ? served(kids) : documentReply(document))(request, clock);
  };

/** Responds to each identifier with a document that names its own keys. */
const ownKeys: Script = (request, clock) => {
  const document = { ...confidentialDocument, client_id: request.url, jwks_uri: `${request.url}/jwks` };
  return (request.url.endsWith("jwks") ? served(["a"]) : documentReply(document))(request, clock);
};

/** Returns the state of a process that has used a document, after this time and as another process reads it. */
async function savedState(headers: Readonly<Record<string, string>> = {}, elapsedMs = 0) {
  const { documents, clock } = documented(documentReply(confidentialDocument, headers));
  await documents.resolve(documentUrl);
  documents.prove(documentUrl);
  clock.setBy(elapsedMs);
  return { clock, state: JSON.parse(JSON.stringify(documents.state())) as ClientDocumentState[] };
}

const ids = (count: number, host = (index: number) => `h${index}.example`): string[] =>
  Array.from({ length: count }, (_, index) => `https://${host(index)}/client.json`);

const path = (index: number): string => `https://client.example/${index}`;

const plain: Sent = () => ({ client_id: documentUrl });
type Sent = (nowMs: number) => Record<string, unknown>;

/** Returns the parameters with which the client authenticates for a grant. */
const signed = (nowMs: number, kid = "a"): Record<string, unknown> => ({
  client_id: documentUrl,
  client_assertion_type: "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
  client_assertion: assertionAt(nowMs, kid),
});
const granted = { clientId: documentUrl, method: "private_key_jwt" } as const;

describe("resolve", () => {
  test("returns the checked document, which is frozen and includes unknown members", async () => {
    const { resolve } = documented(documentReply({ ...publicDocument, "x-y": { z: [1] } }));
    const client = await resolve(documentUrl);
    assert.deepEqual(
      [client.clientId, client.name, client.redirectUris, client.method, client.metadata["x-y"]],
      [documentUrl, "Example", publicDocument.redirect_uris, "none", { z: [1] }],
    );
    const extra = client.metadata["x-y"] as { z: number[] };
    for (const part of [client, client.metadata, client.redirectUris, client.warnings, client.changed, extra, extra.z])
      assert.ok(Object.isFrozen(part));
  });

  const rows: [offered: object, publicClients: boolean, method: string][] = [
    [{ token_endpoint_auth_method: "private_key_jwt" }, true, "private_key_jwt"],
    [{ token_endpoint_auth_method: "none" }, true, "none"],
    [{ token_endpoint_auth_method: "none" }, false, "ERR_CLIENT_METHOD"],
    [{ token_endpoint_auth_method: undefined }, true, "none"],
    [{ token_endpoint_auth_method: undefined }, false, "ERR_CLIENT_METHOD"],
    [{ token_endpoint_auth_methods_supported: ["none", "private_key_jwt"] }, true, "private_key_jwt"],
    [{ token_endpoint_auth_methods_supported: ["none", "private_key_jwt"] }, false, "private_key_jwt"],
    [
      { token_endpoint_auth_method: undefined, token_endpoint_auth_methods_supported: ["private_key_jwt"] },
      true,
      "private_key_jwt",
    ],
    [
      { token_endpoint_auth_method: "none", token_endpoint_auth_methods_supported: ["none", "private_key_jwt"] },
      true,
      "private_key_jwt",
    ],
    [
      {
        token_endpoint_auth_method: "tls_client_auth",
        token_endpoint_auth_methods_supported: ["tls_client_auth", "none"],
      },
      true,
      "none",
    ],
    [
      {
        token_endpoint_auth_method: "private_key_jwt",
        token_endpoint_auth_methods_supported: ["none", "private_key_jwt"],
        token_endpoint_auth_signing_alg: "ES384",
      },
      true,
      "none",
    ],
  ];
  for (const [offered, publicClients, expect] of rows) {
    test(`chooses the strongest common method: ${JSON.stringify(offered)}, ${publicClients}: ${expect}`, async () => {
      const { resolve } = documented(documentReply({ ...confidentialDocument, ...offered }), { publicClients });
      assert.equal(
        await resolve(documentUrl).then(
          ({ method }) => method,
          ({ code }: { code: string }) => code,
        ),
        expect,
      );
    });
  }

  test("caches a document even if its method is not accepted", async () => {
    const { resolve, origin } = documented(documentReply(publicDocument), { publicClients: false });
    for (let call = 0; call < 3; call += 1) assert.equal(await verdict(resolve(documentUrl)), "ERR_CLIENT_METHOD");
    assert.equal(origin.requests.length, 1);
  });

  test("rejects every client until `allow` is set; a host in an `allow` list must include its port unless the port is 443", async () => {
    for (const [allow, clientId, expect] of [
      [undefined, documentUrl, "ERR_CLIENT_FORBIDDEN"],
      [[], documentUrl, "ERR_CLIENT_FORBIDDEN"],
      [["client.example"], documentUrl, "accepted"],
      [["example"], documentUrl, "ERR_CLIENT_FORBIDDEN"],
      [["client.example"], "https://a.client.example/x", "ERR_CLIENT_FORBIDDEN"],
      [["client.example"], "https://client.example:8443/x", "ERR_CLIENT_FORBIDDEN"],
      [["client.example:8443"], "https://client.example:8443/x", "accepted"],
      [async (url: string) => url === documentUrl, documentUrl, "accepted"],
      [async (url: string) => url !== documentUrl, documentUrl, "ERR_CLIENT_FORBIDDEN"],
      [(() => "yes") as unknown as () => boolean, documentUrl, "ERR_CLIENT_FORBIDDEN"],
    ] as const) {
      const { resolve, origin } = documented(anyDocument, { allow });
      assert.equal(await verdict(resolve(clientId)), expect);
      assert.equal(origin.requests.length, expect === "accepted" ? 1 : 0, "no request to a host that is not accepted");
    }
  });

  test("rejects an entry in `allow` that no host can match", () => {
    for (const host of [
      "https://client.example",
      "Client.example",
      "*.client.example",
      "client.example/",
      "client.example:443",
    ])
      assert.throws(() => documented(anyDocument, { allow: [host] }), { code: "ERR_OPTION_INVALID" }, host);
  });

  test("`allow` covers the jwks_uri, and neither `none` nor a cached document can bypass it", async () => {
    const elsewhere = { ...publicDocument, jwks_uri: "https://internal.example/jwks" };
    for (const document of [elsewhere, { ...elsewhere, token_endpoint_auth_method: "private_key_jwt" }]) {
      const { resolve } = documented(documentReply(document), { allow: ["client.example"] });
      assert.equal(await verdict(resolve(documentUrl)), "ERR_CLIENT_FORBIDDEN");
      assert.equal(await verdict(resolve(documentUrl)), "ERR_CLIENT_FORBIDDEN");
    }
  });
});

describe("changes", () => {
  const base = { ...confidentialDocument, logo_uri: "https://client.example/logo" };
  const rows: [name: string, next: object, changed: readonly string[]][] = [
    ["nothing", {}, []],
    ["an unknown member, the scope, the order of members", { x: 1, scope: "a", client_name: "Example" }, []],
    ["the order of redirect URIs", { redirect_uris: ["https://b.example/", "https://a.example/"] }, []],
    ["null instead of an absent member", { tos_uri: null, "client_name#fr": "" }, []],
    ["the method", { token_endpoint_auth_method: "none" }, ["method", "keys"]],
    ["the keys' URL", { jwks_uri: "https://client.example/other" }, ["keys"]],
    ["keys by value", { jwks_uri: undefined, jwks: { keys: [entry("a")] } }, ["keys"]],
    ["a redirect URI", { redirect_uris: ["https://a.example/"] }, ["redirectUris"]],
    ["the name", { client_name: "Bank" }, ["display"]],
    ["the name in one language", { "client_name#fr": "Banque" }, ["display"]],
    ["the logo", { logo_uri: "https://client.example/bank" }, ["display"]],
    ["no logo", { logo_uri: null }, ["display"]],
  ];
  const first = { ...base, redirect_uris: ["https://a.example/", "https://b.example/"] };
  for (const [name, next, changed] of rows) {
    test(`${name}: ${changed.join(", ") || "no change"}`, async () => {
      const before = await documented(documentReply(first)).resolve(documentUrl);
      assert.equal(before.fingerprint.length, 67);
      // Another process, which has never seen the first document.
      const { resolve } = documented(documentReply({ ...first, ...next }));
      const after = await resolve(documentUrl, { since: before.fingerprint });
      assert.deepEqual(after.changed, changed);
    });
  }

  test("changed keys in `jwks` are reported, and an empty `jwks_uri` counts as absent", async () => {
    const one = { ...base, jwks_uri: "", jwks: { keys: [entry("a")] } };
    const other = { ...one, jwks: { keys: [entry("b")] } };
    const { fingerprint } = await documented(documentReply(one)).resolve(documentUrl);
    const { changed } = await documented(documentReply(other)).resolve(documentUrl, { since: fingerprint });
    assert.deepEqual(changed, ["keys"]);
  });

  test("no changes are reported if there is no fingerprint, and all are reported if the fingerprint is invalid", async () => {
    const { resolve } = documented(documentReply(base));
    assert.deepEqual((await resolve(documentUrl)).changed, []);
    const all = ["method", "keys", "redirectUris", "display"];
    for (const since of ["", "x", "....", "a.b.c.d"])
      assert.deepEqual((await resolve(documentUrl, { since })).changed, all);
  });
});

describe("a document is cached", () => {
  for (const [cacheControl, seconds] of [
    [undefined, 300],
    ["max-age=31536000, stale-while-revalidate=86400, immutable", 300],
    ["max-age=60", 60],
    ["no-store", 20],
    ["max-age=0", 20],
  ] as const) {
    test(`for ${seconds} s with ${cacheControl ?? "no Cache-Control"} and is then requested again`, async () => {
      const headers = cacheControl === undefined ? {} : { "Cache-Control": cacheControl };
      const { resolve, origin, clock } = documented(documentReply(publicDocument, headers));
      await resolve(documentUrl);
      origin.script = documentReply({ ...publicDocument, client_name: "Next" }, headers);
      // Up to a fifth of the time before that, a call starts a request in the background.
      clock.setBy(seconds * 800 - 1);
      assert.equal((await resolve(documentUrl)).name, "Example");
      assert.equal(origin.requests.length, 1);
      clock.setBy(seconds * 200 + 1);
      assert.equal((await resolve(documentUrl)).name, "Next");
      assert.equal(origin.requests.length, 2);
    });
  }

  test("and is refreshed in the background before it becomes stale", async () => {
    const { resolve, origin, clock } = documented(documentReply(publicDocument));
    await resolve(documentUrl);
    origin.script = delayed(1_000, documentReply({ ...publicDocument, client_name: "Next" }));
    clock.setBy(245_000);
    assert.equal((await resolve(documentUrl)).name, "Example", "without waiting");
    await clock.advance(1_000);
    assert.equal((await resolve(documentUrl)).name, "Next");
    assert.equal(origin.requests.length, 2);
  });

  test("so that a single request serves many calls; if the document has an ETag, later requests for it are conditional", async () => {
    const { resolve, origin, clock } = documented(delayed(10, documentReply(publicDocument, { ETag: '"1"' })));
    const calls = Array.from({ length: 50 }, () => resolve(documentUrl));
    await clock.advance(10);
    await Promise.all(calls);
    assert.equal(origin.requests.length, 1);
    origin.script = reply(304, null, { ETag: '"1"' });
    clock.setBy(300_000);
    assert.equal((await resolve(documentUrl)).name, "Example");
    assert.equal(origin.requests[1]?.headers["if-none-match"], '"1"');
  });
});

describe("after a document has been fetched", () => {
  const invalid = documentReply({ ...publicDocument, client_id: "https://evil.example/" });
  const rows: [name: string, script: Script, expect: string][] = [
    ["a 404 is an outage", reply(404), "accepted"],
    ["a 429 is an outage", reply(429), "accepted"],
    ["a 500 is an outage", reply(500), "accepted"],
    ["a 503 is an outage", reply(503), "accepted"],
    ["a failed connection is an outage", unreachable, "accepted"],
    ["a 400 ends its use", reply(400), "ERR_FETCH_STATUS"],
    ["a 401 ends its use", reply(401), "ERR_FETCH_STATUS"],
    ["a 403 ends its use", reply(403), "ERR_FETCH_STATUS"],
    ["a 410 ends its use", reply(410), "ERR_CLIENT_WITHDRAWN"],
    ["a redirect ends its use", reply(302, null, { Location: documentUrl }), "ERR_FETCH_REDIRECT"],
    ["an invalid document ends its use", invalid, "ERR_CLIENT_DOCUMENT"],
    ["HTML ends its use", reply(200, "<p>", { "Content-Type": "text/html" }), "ERR_FETCH_BODY"],
    ["an endless document ends its use", documentReply(`{"a":"${"x".repeat(6_000)}"}`), "ERR_FETCH_TOO_LARGE"],
  ];
  for (const [name, script, expect] of rows) {
    test(name, async () => {
      const { resolve, origin, clock } = documented(documentReply(publicDocument));
      await resolve(documentUrl);
      origin.script = script;
      clock.setBy(300_000);
      assert.equal(await verdict(resolve(documentUrl)), expect);
      // The failed response has no part in the next one.
      clock.setBy(20_000);
      origin.script = documentReply(publicDocument);
      assert.equal(await verdict(resolve(documentUrl)), "accepted");
    });
  }

  test("it is no longer used once a background request for it returns 403 or 410, even if it is still fresh", async () => {
    for (const status of [403, 410]) {
      const { resolve, origin, clock } = documented(documentReply(publicDocument));
      await resolve(documentUrl);
      origin.script = reply(status);
      clock.setBy(245_000);
      assert.equal(await verdict(resolve(documentUrl)), "accepted");
      await settled();
      const error = await resolve(documentUrl).catch(
        (error: unknown) => error as { code: string; cause: { code: string } },
      );
      assert.equal((error as { code: string }).code, "ERR_CLIENT_RETRY_LATER");
    }
  });

  test("during an outage, the call that triggers a new request still gets the old document, but after a 410 the next call does not", async () => {
    const { resolve, origin, clock } = documented(documentReply(publicDocument));
    await resolve(documentUrl);
    for (const [status, elapsedMs] of [
      [500, 300_000],
      [410, 20_000],
    ] as const) {
      origin.script = reply(status);
      clock.setBy(elapsedMs);
      assert.equal(await verdict(resolve(documentUrl)), "accepted");
      await settled();
    }
    assert.equal(await verdict(resolve(documentUrl)), "ERR_CLIENT_RETRY_LATER");
    clock.setBy(20_000);
    assert.equal(await verdict(resolve(documentUrl)), "ERR_CLIENT_WITHDRAWN");
  });

  test("the old document is used for at most an hour during an outage, and not at all with must-revalidate", async () => {
    for (const [cacheControl, expect] of [
      ["max-age=300", "accepted"],
      ["max-age=300, must-revalidate", "ERR_FETCH_STATUS"],
    ] as const) {
      const { resolve, origin, clock } = documented(documentReply(publicDocument, { "Cache-Control": cacheControl }));
      await resolve(documentUrl);
      origin.script = reply(404);
      clock.setBy(300_000);
      assert.equal(await verdict(resolve(documentUrl)), expect);
      clock.setBy(3_599_000);
      assert.equal(await verdict(resolve(documentUrl)), expect);
      clock.setBy(1_000);
      assert.notEqual(await verdict(resolve(documentUrl)), "accepted");
    }
  });

  test("if a server does not respond, a call waits at most 1 s when the old document may still be used, and at most 5 s otherwise", async () => {
    const { resolve, origin, clock } = documented(documentReply(publicDocument));
    await resolve(documentUrl);
    origin.script = hanging;
    clock.setBy(300_000);
    const old = verdict(resolve(documentUrl));
    await clock.advance(1_000);
    assert.equal(await old, "accepted");
    const none = verdict(documented(hanging, { clock }).resolve(documentUrl));
    await clock.advance(5_000);
    assert.equal(await none, "ERR_FETCH_TIMEOUT");
  });
});

describe("a pinned document", () => {
  const pinned = [JSON.stringify(confidentialDocument)];

  test("is used forever without being requested, even if `allow` rejects its URL", async () => {
    const allow = (url: string): boolean => url === jwksUri;
    const { resolve, origin, clock, documents } = documented(reply(403), { pinned, allow });
    clock.setBy(365 * 86_400_000);
    const client = await resolve(documentUrl);
    assert.deepEqual([client.method, client.jwksUri, origin.requests.length], ["private_key_jwt", jwksUri, 0]);
    documents.prove(documentUrl);
    assert.deepEqual(documents.state(), [], "not saved, so it can be unpinned");
    assert.equal(await verdict(resolve("https://client.example/other")), "ERR_CLIENT_FORBIDDEN");
  });

  test("can refer to keys only at a URL that `allow` accepts", async () => {
    for (const allow of [["other.example"], undefined]) {
      const { resolve } = documented(reply(403), { pinned, allow });
      assert.equal(await verdict(resolve(documentUrl)), "ERR_CLIENT_FORBIDDEN");
    }
  });

  test("is checked when it is passed in", () => {
    for (const [document, code] of [
      [{ ...publicDocument, client_id: "http://client.example/" }, "ERR_CLIENT_ID"],
      [{ ...publicDocument, client_name: "" }, "ERR_CLIENT_DOCUMENT"],
      [{}, "ERR_CLIENT_ID"],
      ["", "ERR_OPTION_INVALID"],
      [null, "ERR_OPTION_INVALID"],
    ] as const) {
      const text = (typeof document === "object" && document !== null ? JSON.stringify(document) : document) as string;
      assert.throws(() => documented(reply(404), { pinned: [text] }), { code });
    }
    assert.throws(() => documented(reply(404), { pinned: ["{"] }), { code: "ERR_CLIENT_ID" });
  });
});

describe("a document from an earlier process", () => {
  test("stays fresh for as long as it would have in that process, and is then requested again with its ETag", async () => {
    const { clock, state } = await savedState({ ETag: '"1"', "Cache-Control": "max-age=300" }, 200_000);
    const { resolve, origin } = documented(reply(304, null, { ETag: '"1"' }), { clock, state });
    assert.equal(await verdict(resolve(documentUrl)), "accepted");
    assert.equal(origin.requests.length, 0);
    clock.setBy(100_000);
    assert.equal(await verdict(resolve(documentUrl)), "accepted");
    assert.deepEqual(
      origin.requests.map(({ headers }) => headers["if-none-match"]),
      ['"1"'],
    );
  });

  test("is used during an outage until an hour after it became stale, unless it must be revalidated", async () => {
    for (const [cacheControl, elapsedMs, expect] of [
      ["max-age=300", 3_899_000, "accepted"],
      ["max-age=300", 3_900_000, "ERR_FETCH_STATUS"],
      ["max-age=300, must-revalidate", 300_000, "ERR_FETCH_STATUS"],
      ["no-store", 20_000, "ERR_FETCH_STATUS"],
      ["max-age=300", -1, "ERR_FETCH_STATUS"],
    ] as const) {
      const { clock, state } = await savedState({ "Cache-Control": cacheControl }, elapsedMs);
      const { resolve } = documented(reply(404), { clock, state });
      assert.equal(await verdict(resolve(documentUrl)), expect, `${cacheControl}, ${elapsedMs} ms later`);
    }
  });

  test("can be withdrawn by its host, and is not restored after that", async () => {
    const { clock, state } = await savedState({}, 300_000);
    const { resolve, documents } = documented(reply(410), { clock, state });
    assert.equal(await verdict(resolve(documentUrl)), "ERR_CLIENT_WITHDRAWN");
    assert.equal(await verdict(resolve(documentUrl)), "ERR_CLIENT_RETRY_LATER");
    assert.deepEqual(documents.state(), []);
  });

  test("must be accepted by `allow` and counts as a proven client's document so that made-up identifiers cannot evict it", async () => {
    const { clock, state } = await savedState();
    const { resolve } = documented(anyDocument, { clock, state, allow: ["other.example"] });
    assert.equal(await verdict(resolve(documentUrl)), "ERR_CLIENT_FORBIDDEN");
    const { resolve: other, origin } = documented(anyDocument, { clock, state, maxDocuments: 10 });
    for (const id of ids(20)) await verdict(other(id));
    assert.equal(await verdict(other(documentUrl)), "accepted");
    for (const id of ids(20)) await verdict(other(id));
    assert.equal(await verdict(other(documentUrl)), "accepted");
    assert.equal(origin.requests.filter(({ url }) => url === documentUrl).length, 0);
  });

  test("is saved again even if it was not used, but a new document is not saved if its client was never proven", async () => {
    const { state } = await savedState();
    const { documents } = documented(anyDocument, { state });
    await documents.resolve("https://other.example/client.json");
    assert.deepEqual(JSON.parse(JSON.stringify(documents.state())), state);
    await documents.resolve(documentUrl);
    assert.deepEqual(JSON.parse(JSON.stringify(documents.state())), state);
  });

  test("is not saved again if that would exceed `maxDocuments`, because documents that this process used take precedence", async () => {
    let { state } = await savedState();
    for (let process = 0; process < 3; process += 1) {
      const { resolve, documents } = documented(anyDocument, { state, maxDocuments: 10 });
      const used = ids(9, (index) => `h${index}.process${process}.example`);
      for (const id of used) {
        await resolve(id);
        documents.prove(id);
      }
      state = [...documents.state()];
      assert.deepEqual(new Set(state.map(({ clientId }) => clientId).slice(-9)), new Set(used));
      assert.equal(state.length, 10);
    }
  });

  test("is ignored and reported if it is no longer valid", async () => {
    const { clock, state } = await savedState();
    const events: object[] = [];
    const changed = state.map((one) => Object.assign(one, { body: "{}" }));
    const onEvent = (event: object): unknown => events.push(event);
    const { resolve } = documented(documentReply(confidentialDocument), { clock, state: changed, onEvent });
    assert.equal(await verdict(resolve(documentUrl)), "accepted");
    assert.deepEqual(
      events.map((event) => (event as { type: string; code?: string }).code ?? (event as { type: string }).type),
      ["ERR_CLIENT_DOCUMENT", "refreshed"],
    );
  });

  test("counts toward the limit on the average document size, 5 KiB", async () => {
    const { state: one } = await savedState({ ETag: `"${"e".repeat(9_000)}"` });
    const state = ids(20).flatMap((clientId) => {
      const body = JSON.stringify({ ...publicDocument, client_id: clientId });
      return one.map((state) => Object.assign({}, state, { clientId, body }));
    });
    const { resolve, documents } = documented(anyDocument, { state, maxDocuments: 20 });
    for (const { clientId } of state) await resolve(clientId);
    await resolve(documentUrl);
    const { length } = documents.state();
    assert.ok(length <= 11, `${length} documents of 9 KB`);
  });

  test("must have the form that state() returns", async () => {
    const [one] = (await savedState()).state;
    for (const other of [null, {}, { ...one, clientId: 1 }, { ...one, body: 1 }, { ...one, headers: null }])
      assert.throws(() => documented(reply(404), { state: [other as ClientDocumentState] }), {
        code: "ERR_OPTION_INVALID",
      });
  });
});

describe("the limits", () => {
  test("10,000 made-up identifiers never evict a document that is in use, because its client was marked as proven by consent", async () => {
    const { resolve, documents, origin, clock } = documented(anyDocument, { maxDocuments: 100 });
    await resolve(documentUrl);
    documents.prove(documentUrl);
    const results = new Map<string, number>();
    for (const id of ids(10_000)) {
      const result = await verdict(resolve(id));
      results.set(result, (results.get(result) ?? 0) + 1);
    }
    assert.deepEqual(
      [...results],
      [
        ["accepted", 100],
        ["ERR_CLIENT_RETRY_LATER", 9_900],
      ],
      "100 trials a minute",
    );
    clock.setBy(60_000);
    const requests = origin.requests.length;
    assert.equal(await verdict(resolve(documentUrl)), "accepted");
    assert.equal(origin.requests.length, requests, "without a request");
  });

  test("consent marks a client as proven even if its document has been evicted", async () => {
    const { resolve, documents, origin, clock } = documented(anyDocument, { maxDocuments: 10 });
    await resolve(documentUrl);
    clock.setBy(60_000);
    for (const id of ids(10)) await verdict(resolve(id));
    documents.prove(documentUrl);
    assert.equal(await verdict(resolve(documentUrl)), "accepted");
    assert.equal(origin.requests.filter(({ url }) => url === documentUrl).length, 2);
  });

  test("a proven client is looked up even if made-up identifiers have used up the limit for new clients", async () => {
    const { resolve, documents } = documented(anyDocument, { maxDocuments: 10 });
    for (const id of ids(20)) await verdict(resolve(id));
    assert.equal(await verdict(resolve(documentUrl)), "ERR_CLIENT_RETRY_LATER");
    documents.prove(documentUrl);
    assert.equal(await verdict(resolve(documentUrl)), "accepted");
  });

  test("documents take at most 5 KiB on average", async () => {
    const large = "x".repeat(4_500);
    const script: Script = (request, clock) =>
      documentReply({ ...publicDocument, client_id: request.url, large }, { ETag: `"${"e".repeat(4_000)}"` })(
        request,
        clock,
      );
    const { resolve, documents } = documented(script, { maxDocuments: 20 });
    const all = ids(20);
    for (const id of all) {
      documents.prove(id);
      await resolve(id);
    }
    const { length } = documents.state();
    assert.ok(length <= 11, `${length} documents of 9 KB`);
  });

  test("large documents for made-up identifiers do not evict a proven client's larger document", async () => {
    const { resolve, documents, clock } = documented(
      (request, clock) => {
        const large = "x".repeat(request.url === documentUrl ? 4_900 : 4_890);
        return documentReply({ ...publicDocument, client_id: request.url, large })(request, clock);
      },
      { maxDocuments: 20 },
    );
    await resolve(documentUrl);
    documents.prove(documentUrl);
    for (const id of ids(20)) await verdict(resolve(id));
    assert.deepEqual(
      documents.state().map(({ clientId }) => clientId),
      [documentUrl],
    );
    await clock.advance(20_000);
    for (let call = 0; call < 2; call += 1) assert.equal(await verdict(resolve(documentUrl)), "accepted");
  });

  test("one host receives at most 16 requests at a time and 600 per minute, and at most half of them may be for clients that were never proven", async () => {
    const { resolve, origin, clock, documents } = documented(hanging);
    for (let index = 0; index < 40; index += 1) void verdict(resolve(path(index)));
    await settled();
    assert.equal(origin.requests.length, 8);
    for (let index = 100; index < 140; index += 1) {
      documents.prove(path(index));
      void verdict(resolve(path(index)));
    }
    await settled();
    assert.equal(origin.requests.length, 16);
    assert.equal(await verdict(resolve(path(50))), "ERR_FETCH_BUSY");
    origin.script = anyDocument;
    void verdict(resolve("https://other.example/client.json"));
    await settled();
    assert.equal(origin.requests.length, 17, "other hosts are not affected");
    await clock.advance(5_000);

    clock.setBy(60_000);
    const before = origin.requests.length;
    const verdicts = new Set<string>();
    for (let index = 1_000; index < 1_400; index += 1) verdicts.add(await verdict(resolve(path(index))));
    assert.deepEqual([origin.requests.length - before, [...verdicts]], [300, ["accepted", "ERR_FETCH_BUSY"]]);
    const busy = await resolve(path(1_401)).catch((error: unknown) => error as { retryAfterSeconds: number });
    assert.equal((busy as { retryAfterSeconds: number }).retryAfterSeconds, 60);
    documents.prove(path(2_000));
    assert.equal(await verdict(resolve(path(2_000))), "accepted");
    clock.setBy(60_000);
    assert.equal(await verdict(resolve(path(3_000))), "accepted");
  });

  test("a request that never ends occupies one slot and does not block its host", async () => {
    const { resolve, origin, clock } = documented(hanging);
    for (let index = 0; index < 8; index += 1) void verdict(resolve(path(index)));
    await settled();
    // No timer fires, so no request ends.
    clock.setBy(60_000);
    assert.equal(await verdict(resolve(path(8))), "ERR_FETCH_BUSY");
    const { resolve: other, origin: second, clock: time } = documented(hanging);
    void verdict(other(path(0)));
    await settled();
    second.script = anyDocument;
    for (let index = 1; index < 300; index += 1) await other(path(index));
    assert.equal(await verdict(other(path(300))), "ERR_FETCH_BUSY");
    time.setBy(60_000);
    assert.equal(await verdict(other(path(301))), "accepted");
    assert.equal(origin.requests.length, 8);
  });

  test("all ports on a host count as the same host", async () => {
    const { resolve, origin } = documented(hanging);
    for (let index = 1; index <= 40; index += 1) void verdict(resolve(`https://client.example:${index}/client.json`));
    await settled();
    assert.equal(origin.requests.length, 8);
  });

  test("a verifier's requests for keys count against the same host limits", async () => {
    const { resolve, origin, clock, clients } = documented(hanging);
    for (let index = 0; index < 8; index += 1) void verdict(resolve(`https://client.example/${index}`));
    await settled();
    assert.equal(origin.requests.length, 8);
    const registered = { clientId: "registered", jwksUri };
    const token = assertionAt(clock.now(), "a", {}, "registered");
    assert.equal(await verdict(clients.clientAssertion(token, registered)), "ERR_FETCH_BUSY");
  });

  test("the limit on requests per host also applies to registered clients' key sets", async () => {
    const { origin, clock } = documented(hanging);
    const plain = verifier({ clock, fetch: origin.fetch });
    for (let index = 0; index < 20; index += 1) {
      const clientId = `c${index}`;
      void verdict(
        plain.clientAssertion(assertionAt(clock.now(), "a", {}, clientId), {
          clientId,
          jwksUri: `${jwksUri}/${index}`,
        }),
      );
    }
    await settled();
    assert.equal(origin.requests.length, 8);
  });
});

describe("a verifier with documents", () => {
  test("accepts assertions from unregistered clients; only an assertion for a grant marks its client as proven", async () => {
    for (const isGranted of [true, false]) {
      const { clients, clock, origin, resolve } = documented(hostedClient(["a"]), { maxDocuments: 5 });
      const { claims } = await clients.clientAssertion(assertionAt(clock.now(), "a"));
      assert.equal(claims.sub, documentUrl);
      assert.equal(origin.requests.length, 2);
      if (isGranted) await clients.authenticate(signed(clock.now()), granted);
      clock.setBy(60_000);
      origin.script = anyDocument;
      for (let index = 0; index < 50; index += 1) await verdict(resolve(`https://h${index}.example/`));
      const requests = origin.requests.length;
      const again = await verdict(clients.authenticate(signed(clock.now()), granted));
      assert.equal(again, isGranted ? "accepted" : "ERR_CLIENT_RETRY_LATER");
      assert.equal(origin.requests.length, requests);
    }
  });

  test("clients that sign only on their own behalf never evict the documents or keys of clients with a grant", async () => {
    const bounds = [{ maxDocuments: 5 }, { maxKeySets: 5 }] as const;
    const { clients, clock, origin } = documented(ownKeys, ...bounds);
    await clients.authenticate(signed(clock.now()), granted);
    const results = new Set<string>();
    for (const id of ids(20)) {
      results.add(await verdict(clients.clientAssertion(assertionAt(clock.now(), "a", {}, id))));
    }
    assert.deepEqual([...results], ["accepted", "ERR_CLIENT_RETRY_LATER"], "the limit on new clients applies");
    clock.setBy(60_000);
    for (const id of ids(20, (index) => `i${index}.example`))
      await verdict(clients.clientAssertion(assertionAt(clock.now(), "a", {}, id)));
    const requests = origin.requests.length;
    assert.equal(await verdict(clients.authenticate(signed(clock.now()), granted)), "accepted");
    assert.equal(origin.requests.length, requests);
  });

  test("accepts client assertions and request objects from a client whose document contains its keys by value", async () => {
    const document = { ...confidentialDocument, jwks_uri: undefined, jwks: { keys: [entry("a")] } };
    const { clients, clock } = documented(documentReply(document));
    assert.equal(await verdict(clients.clientAssertion(assertionAt(clock.now(), "a"))), "accepted");
    const claims = { iss: documentUrl, client_id: documentUrl, aud: issuer, exp: clock.now() / 1000 + 60 };
    const object = compact({ alg: "ES256", kid: "a" }, claims, signature("ES256", ecKey("a")));
    assert.equal(await verdict(clients.requestObject(object)), "accepted");
  });

  test("follows a rotation of the client's keys", async () => {
    const { clients, clock, origin } = documented(hostedClient(["a"]));
    const check = (kid: string): Promise<string> => verdict(clients.clientAssertion(assertionAt(clock.now(), kid)));
    assert.equal(await check("a"), "accepted");
    origin.script = hostedClient(["b"]);
    assert.equal(await check("b"), "accepted", "an unknown kid is looked up");
    assert.equal(await check("a"), "ERR_TOKEN_KID_UNKNOWN");
  });

  const refused: [name: string, script: Script, claims: object, kid: string, expect: string][] = [
    ["from a public client", hostedClient(["a"], publicDocument), {}, "a", "ERR_CLIENT_METHOD"],
    [
      "from a client whose document names a different algorithm",
      hostedClient(["a"], { ...confidentialDocument, token_endpoint_auth_signing_alg: "RS256" }),
      {},
      "a",
      "ERR_TOKEN_ALG",
    ],
    ["for the token endpoint", hostedClient(["a"]), { aud: `${issuer}/token` }, "a", "ERR_TOKEN_CLAIM"],
    ["for two audiences", hostedClient(["a"]), { aud: [issuer, "https://other.example"] }, "a", "ERR_TOKEN_CLAIM"],
    [
      "from a client other than its subject",
      hostedClient(["a"]),
      { sub: "https://other.example/" },
      "a",
      "ERR_TOKEN_CLAIM",
    ],
    ["without an issuer", hostedClient(["a"]), { iss: undefined }, "a", "ERR_TOKEN_CLAIM"],
    ["whose issuer is not a URL", hostedClient(["a"]), { iss: "client-1" }, "a", "ERR_CLIENT_ID"],
    [
      "whose issuer is spelled differently",
      hostedClient(["a"]),
      { iss: "https://client.example:443/client.json" },
      "a",
      "ERR_CLIENT_ID",
    ],
    ["signed with an unknown key", hostedClient(["a"]), {}, "b", "ERR_TOKEN_KID_UNKNOWN"],
    ["from a client without a document", reply(404), {}, "a", "ERR_FETCH_STATUS"],
  ];
  for (const [name, script, claims, kid, expect] of refused) {
    test(`rejects an assertion ${name}: ${expect}`, async () => {
      const { clients, clock } = documented(script);
      assert.equal(await verdict(clients.clientAssertion(assertionAt(clock.now(), kid, claims))), expect);
    });
  }

  test("explains how to accept clients that send the token endpoint as aud", async () => {
    const { clients, clock } = documented(hostedClient(["a"]));
    const token = assertionAt(clock.now(), "a", { aud: `${issuer}/token` });
    const error = await clients.clientAssertion(token).catch((error: unknown) => error as { hint: string });
    assert.match((error as { hint: string }).hint, /expected "https:\/\/op\.example"; if .*"audiences"$/);
    const { clients: lenient, clock: other } = documented(hostedClient(["a"]), {}, { audiences: [`${issuer}/token`] });
    assert.equal(
      await verdict(lenient.clientAssertion(assertionAt(other.now(), "a", { aud: `${issuer}/token` }))),
      "accepted",
    );
  });

  test("a registered client takes precedence, and no document is requested for it", async () => {
    const { clients, clock, origin } = documented(reply(500));
    const client = { clientId: documentUrl, jwks: { keys: [entry("a")] }, fingerprint: "its own", metadata: null };
    assert.equal(await verdict(clients.clientAssertion(assertionAt(clock.now(), "a"), client)), "accepted");
    assert.equal(origin.requests.length, 0);
  });

  test("requires documents from createClientDocuments() for a token without a client", async () => {
    await assert.rejects(verifier().clientAssertion(assertionAt(0, "a")), { code: "ERR_OPTION_INVALID" });
    const copy = { ...createClientDocuments({ issuer, fetch: async () => new Response() }) };
    assert.throws(() => verifier({ documents: copy }), { code: "ERR_OPTION_INVALID" });
  });

  test("a client cannot use another client's keys or use up its refetches", async () => {
    const thief = "https://evil.example/client.json";
    const stolen = documentReply({ ...confidentialDocument, client_id: thief });
    const script = (kids: readonly string[]): Script =>
      routed({ [documentUrl]: documentReply(confidentialDocument), [thief]: stolen, [jwksUri]: served(kids) });
    const { clients, clock, origin } = documented(script(["a"]));
    const check = (token: string, client?: { clientId: string }): Promise<string> =>
      verdict(clients.clientAssertion(token, client));
    const authenticate = (kid: string): Promise<string> =>
      verdict(clients.authenticate(signed(clock.now(), kid), granted));
    const victims = assertionAt(clock.now(), "a");
    const thiefDocument = await documented(script(["a"])).resolve(thief);
    assert.equal(await check(victims, thiefDocument), "ERR_TOKEN_CLAIM", "the victim's token is not the thief's");
    assert.equal(await authenticate("a"), "accepted");
    // The thief has no key, but its made-up kids cause requests to the victim's URL. One is the victim's next kid.
    for (const kid of ["b", "c", "d"])
      assert.notEqual(await check(assertionAt(clock.now(), kid, {}, thief)), "accepted");
    const before = origin.requests.length;
    origin.script = script(["b"]);
    assert.equal(await authenticate("b"), "accepted", "a rotation is found in the same second");
    assert.equal(origin.requests.length, before + 1);
  });

  test("if hundreds of made-up clients name a real client's jwks_uri, they share one refetch every 20 s, and the real client keeps its own refetch", async () => {
    const { clients, clock, origin } = documented(sharedKeys(["a"]));
    const check = (kid: string, clientId: string): Promise<string> =>
      verdict(clients.clientAssertion(assertionAt(clock.now(), kid, {}, clientId)));
    const authenticate = (kid: string): Promise<string> =>
      verdict(clients.authenticate(signed(clock.now(), kid), granted));
    const requests = (): number => origin.requests.filter(({ url }) => url === jwksUri).length;
    assert.equal(await authenticate("a"), "accepted");
    for (const [index, id] of ids(300, (index) => `h${index}.evil.example`).entries())
      assert.notEqual(await check(`made-up ${index}`, id), "accepted");
    assert.equal(requests(), 2);
    origin.script = sharedKeys(["b"]);
    assert.equal(await authenticate("b"), "accepted", "a rotation is found in the same second");
    assert.equal(requests(), 3);
  });

  test("requires request objects to use the algorithm that the document names", async () => {
    const keys = { ...confidentialDocument, jwks_uri: undefined, jwks: { keys: [entry("a")] } };
    for (const [alg, expect] of [
      ["ES256", "accepted"],
      ["RS256", "ERR_TOKEN_ALG"],
      ["none", "ERR_TOKEN_ALG"],
      ["HS256", "ERR_TOKEN_ALG"],
      [["ES256"], "ERR_CLIENT_DOCUMENT"],
    ] as const) {
      const { clients, clock } = documented(documentReply({ ...keys, request_object_signing_alg: alg }));
      const claims = { iss: documentUrl, client_id: documentUrl, aud: issuer, exp: clock.now() / 1000 + 60 };
      const object = compact({ alg: "ES256", kid: "a" }, claims, signature("ES256", ecKey("a")));
      assert.equal(await verdict(clients.requestObject(object)), expect, String(alg));
    }
  });

  test("accepts an assertion only once across all processes that share a replay store", async () => {
    const replay = memoryReplayStore({ clock: simulatedClock() });
    const one = documented(hostedClient(["a"]), {}, { replay });
    const two = documented(hostedClient(["a"]), {}, { replay });
    const token = assertionAt(one.clock.now(), "a");
    const results = await Promise.all(
      [one, two, two, one].map(({ clients }) => verdict(clients.clientAssertion(token))),
    );
    assert.deepEqual(results.toSorted(), [
      "ERR_TOKEN_REPLAYED",
      "ERR_TOKEN_REPLAYED",
      "ERR_TOKEN_REPLAYED",
      "accepted",
    ]);
  });

  test("includes the client that the token names when it reports a refusal", async () => {
    const events: object[] = [];
    const { clients, clock } = documented(reply(404), {}, { onEvent: (event) => events.push(event) });
    for (let call = 0; call < 2; call += 1) await verdict(clients.clientAssertion(assertionAt(clock.now(), "a")));
    const refusal = { type: "refused", kind: "clientAssertion", clientId: documentUrl };
    assert.deepEqual(events, [
      { ...refusal, code: "ERR_FETCH_STATUS" },
      { ...refusal, code: "ERR_CLIENT_RETRY_LATER" },
      { type: "exhausted", budget: "documents", kind: "clientAssertion", clientId: documentUrl },
    ]);
  });
});

describe("the token endpoint requires the same authentication method as the authorization request (draft 00 section 6.2, draft 02 section 8.2, draft 03 section 9.2: MUST)", () => {
  const without =
    (name: string): Sent =>
    (now) => {
      const { [name]: _, ...others } = signed(now);
      return others;
    };
  const both = { ...confidentialDocument, token_endpoint_auth_methods_supported: ["none", "private_key_jwt"] };
  const rows: [name: string, method: "none" | "private_key_jwt", document: object, sent: Sent, expect: string][] = [
    ["an assertion", "private_key_jwt", confidentialDocument, signed, "accepted"],
    ["an assertion without client_id", "private_key_jwt", confidentialDocument, without("client_id"), "accepted"],
    ["no credential from a public client", "none", publicDocument, plain, "accepted"],
    ["a missing assertion", "private_key_jwt", confidentialDocument, plain, "ERR_CLIENT_METHOD"],
    [
      "a missing assertion from a client that also offers the method none",
      "private_key_jwt",
      both,
      plain,
      "ERR_CLIENT_METHOD",
    ],
    ["a missing type", "private_key_jwt", confidentialDocument, without("client_assertion_type"), "ERR_CLIENT_METHOD"],
    [
      "an empty assertion",
      "private_key_jwt",
      confidentialDocument,
      (now) => ({ ...signed(now), client_assertion: "" }),
      "ERR_TOKEN_MALFORMED",
    ],
    [
      "two assertions",
      "private_key_jwt",
      confidentialDocument,
      (now) => ({ ...signed(now), client_assertion: ["a", "b"] }),
      "ERR_CLIENT_METHOD",
    ],
    ["a document that has downgraded the method", "private_key_jwt", publicDocument, plain, "ERR_CLIENT_METHOD"],
    ["a document that has upgraded the method", "none", confidentialDocument, signed, "ERR_CLIENT_METHOD"],
    [
      "a document that has upgraded the method, without an assertion",
      "none",
      confidentialDocument,
      plain,
      "ERR_CLIENT_METHOD",
    ],
    ["an assertion from a public client", "none", publicDocument, signed, "ERR_CLIENT_METHOD"],
    ["a secret", "none", publicDocument, () => ({ ...plain(0), client_secret: "x" }), "ERR_CLIENT_METHOD"],
    ["another client_id", "none", publicDocument, () => ({ client_id: "https://evil.example/" }), "ERR_CLIENT_METHOD"],
    ["no client_id", "none", publicDocument, () => ({}), "ERR_CLIENT_METHOD"],
    [
      "another client_id with an assertion",
      "private_key_jwt",
      confidentialDocument,
      (now) => ({ ...signed(now), client_id: "x" }),
      "ERR_CLIENT_METHOD",
    ],
    [
      "another client's assertion",
      "private_key_jwt",
      confidentialDocument,
      (now) => ({ ...signed(now), client_assertion: assertionAt(now, "a", {}, "https://evil.example/") }),
      "ERR_TOKEN_CLAIM",
    ],
  ];
  for (const [name, method, document, sent, expect] of rows) {
    test(`${name}: ${expect}`, async () => {
      const { clients, clock } = documented(hostedClient(["a"], document));
      const parameters = sent(clock.now());
      const granted = { clientId: documentUrl, method };
      assert.equal(await verdict(clients.authenticate(parameters, granted)), expect);
      if (expect !== "accepted") return;
      const form = new URLSearchParams(sent(clock.now()) as Record<string, string>);
      const { clientId }: ResolvedClient = await clients.authenticate(form, granted);
      assert.equal(clientId, documentUrl);
    });
  }

  test("repeated authentication parameters are rejected (RFC 6749 section 3.2), but a repeated resource is not (RFC 8707 section 2)", async () => {
    const { clients, clock } = documented(hostedClient(["a"]));
    for (const [name, expect] of [
      ["client_id", "ERR_CLIENT_METHOD"],
      ["client_assertion", "ERR_CLIENT_METHOD"],
      ["client_assertion_type", "ERR_CLIENT_METHOD"],
      ["resource", "accepted"],
    ] as const) {
      const form = new URLSearchParams(signed(clock.now()) as Record<string, string>);
      form.append("resource", "https://api.example/");
      form.append(name, form.get(name) ?? "");
      assert.equal(await verdict(clients.authenticate(form, granted)), expect, name);
    }
  });

  test("the changes since the grant are returned so that the server can decide what to do", async () => {
    const { fingerprint } = await documented(documentReply(publicDocument)).resolve(documentUrl);
    const { clients } = documented(documentReply({ ...publicDocument, client_name: "Bank" }));
    const granted = { clientId: documentUrl, method: "none", fingerprint } as const;
    assert.deepEqual((await clients.authenticate(plain(0), granted)).changed, ["display"]);
  });
});

describe("metadata for discovery (draft 00 section 5, draft 02 section 6, draft 03 section 7: MUST include)", () => {
  test("names the algorithms and the methods, with the `none` method only if public clients are accepted", () => {
    for (const [publicClients, methods] of [
      [true, ["private_key_jwt", "none"]],
      [false, ["private_key_jwt"]],
      [undefined, ["private_key_jwt"]],
    ] as const) {
      const { documents } = documented(anyDocument, { publicClients });
      assert.deepEqual(documents.metadata, {
        client_id_metadata_document_supported: true,
        token_endpoint_auth_methods_supported: methods,
        token_endpoint_auth_signing_alg_values_supported: ["RS256", "PS256", "ES256", "EdDSA"],
      });
    }
  });
});

test("reports every request and failure as printable text, without the document", async () => {
  const events: object[] = [];
  const { resolve, origin, clock } = documented(documentReply(publicDocument), {
    onEvent: (event) => events.push(event),
  });
  await resolve(documentUrl);
  origin.script = documentReply({ ...publicDocument, client_name: "" });
  clock.setBy(300_000);
  await verdict(resolve(documentUrl));
  const message = `${documentUrl}: the client's metadata document has no "client_name"`;
  assert.deepEqual(events, [
    { type: "refreshed", clientId: documentUrl, status: 200, bytes: JSON.stringify(publicDocument).length },
    { type: "failed", clientId: documentUrl, code: "ERR_CLIENT_DOCUMENT", message },
  ]);
});
