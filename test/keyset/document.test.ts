import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { describe, test } from "node:test";
import { createProvider, localSigner, systemClock } from "../../src/index.ts";
import { makeDocument } from "../../src/keys/keyset/document.ts";
import { ecKey, withoutPrivate } from "../support/keys.ts";

describe("a document is ASCII, so that its length is its size in bytes", () => {
  const rows: [name: string, value: unknown, text: string][] = [
    ["ASCII", { kid: "a" }, '{"kid":"a"}'],
    ["Latin-1", { kid: "\xe9" }, String.raw`{"kid":"\u00e9"}`],
    ["the last ASCII character and the first that is not", { kid: "\x7f\x80" }, '{"kid":"\x7f\\u0080"}'],
    ["beyond the basic plane", { kid: "\u{1f511}" }, String.raw`{"kid":"\ud83d\udd11"}`],
    ["control characters and quotes", { kid: '\n"' }, String.raw`{"kid":"\n\""}`],
  ];
  for (const [name, value, text] of rows) {
    test(name, async () => {
      const document = await makeDocument(value);
      assert.equal(document.text, text);
      assert.equal(document.etag, `"${createHash("sha256").update(text).digest("hex")}"`);
      assert.deepEqual(JSON.parse(document.text), value);
    });
  }
});

test("contract, section 4: the ETag covers the whole body, however large", async () => {
  const { text, etag } = await makeDocument({ keys: ["x".repeat(10_000_000), "end"] });
  assert.equal(text, `{"keys":["${"x".repeat(10_000_000)}","end"]}`);
  assert.equal(etag, `"${createHash("sha256").update(text).digest("hex")}"`);
});

const key = (kid: string, notAfter?: number | null) => ({
  kid,
  publicKey: withoutPrivate(ecKey(kid)),
  ...(notAfter !== undefined && { notAfter: notAfter === null ? null : new Date(notAfter) }),
});

test("an encryption key is published until its notAfter, and not from it on", async () => {
  let now = 1_000;
  const provider = await createProvider({
    issuer: "https://op.example",
    clock: { ...systemClock, now: () => now },
    keyset: [{ kid: "s", signer: await localSigner(ecKey("s")) }],
    encryptionKeyset: [
      key("past", 999),
      key("now", 1_000),
      key("late", 3_000),
      key("soon", 1_001),
      key("late too", 3_000),
      key("null", null),
      key("never"),
    ],
  });
  const rows: [at: number, kids: string[]][] = [
    [1_000, ["s", "late", "soon", "late too", "null", "never"]],
    [1_001, ["s", "late", "late too", "null", "never"]],
    [2_999, ["s", "late", "late too", "null", "never"]],
    [3_000, ["s", "null", "never"]],
    [9e12, ["s", "null", "never"]],
    // A clock that is put right again.
    [2_999, ["s", "late", "late too", "null", "never"]],
    [998, ["s", "past", "now", "late", "soon", "late too", "null", "never"]],
  ];
  const etags = new Set<string | null>();
  for (const [at, kids] of rows) {
    now = at;
    const response = await provider.fetch(new Request("https://op.example/jwks"));
    const text = await response.text();
    assert.deepEqual(
      (JSON.parse(text) as { keys: { kid: string }[] }).keys.map(({ kid }) => kid),
      kids,
      `at ${at}`,
    );
    assert.equal(response.headers.get("etag"), `"${createHash("sha256").update(text).digest("hex")}"`);
    etags.add(response.headers.get("etag"));
  }
  assert.equal(etags.size, 4);
});

test("several notAfter that passed since the last request are all taken into account", async () => {
  let now = 0;
  const provider = await createProvider({
    issuer: "https://op.example",
    clock: { ...systemClock, now: () => now },
    keyset: [{ kid: "s", signer: await localSigner(ecKey("s")) }],
    encryptionKeyset: [1, 2, 3].map((at) => ({
      kid: `e${at}`,
      publicKey: withoutPrivate(ecKey(`e${at}`)),
      notAfter: new Date(at),
    })),
  });
  now = 3;
  const { keys } = (await (await provider.fetch(new Request("https://op.example/jwks"))).json()) as { keys: unknown[] };
  assert.equal(keys.length, 1);
});
