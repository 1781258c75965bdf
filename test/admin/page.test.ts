import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { html, lines } from "../../src/base/html.ts";
import { page, pageParts, pagePolicy } from "../../src/service/admin/page/page.ts";
import { script } from "../../src/service/admin/page/script.ts";
import type { ServedSet } from "../../src/service/admin/page/served-set.ts";
import { style } from "../../src/service/admin/page/style.ts";
import type { ServiceSnapshot } from "../../src/service/admin/service-snapshot.ts";
import { statusOf } from "../../src/service/admin/status.ts";
import { day, hour, record, start, waiting } from "../rules/key-records.ts";
import { presenceRecord, storeDocument } from "../support/store-view.ts";

const nonce = "bm9uY2U=";
const served: ServedSet = {
  status: "200 OK",
  headers: [
    ["Content-Type", "application/jwk-set+json"],
    ["ETag", '"abc"'],
  ],
  body: '{"keys":[]}',
};

/** Returns the state of a service in which every external string is this one. */
function knownWith(hostile: string): ServiceSnapshot {
  const failure = { at: start - hour, code: "ERR_STORE_UNAVAILABLE", message: hostile };
  const active = record(hostile, "active", { announcedAt: start - 12 * day, activatedAt: start - 10 * day });
  const next = {
    ...waiting(record(`${hostile}2`, "announced", { announcedAt: start - hour })),
    privateHalf: { uri: `pkcs11:${hostile}` },
  };
  return {
    now: start,
    phase: "running",
    issuer: `https://op.example/${hostile}`,
    jwksUri: `https://op.example/${hostile}/jwks`,
    pid: 42,
    commandFlags: "--data /srv/keys",
    notReady: hostile,
    isShortBySetting: false,
    isShort: false,
    published: [
      { jwk: { kid: `${hostile}3`, use: "enc", alg: "RSA-OAEP", kty: "RSA", n: "", e: "" }, notAfter: Infinity },
    ],
    manager: {
      id: "self",
      document: storeDocument([active, next], {
        targets: [{ name: hostile, revision: 4, at: start - 2 * hour }],
        events: [{ number: 1, at: start - hour, type: "announced", kid: hostile, use: "sig", reason: hostile }],
      }),
      policyGiven: { rotateEveryDays: 30 },
      unread: 0,
      processes: [
        presenceRecord("self", { name: hostile, version: hostile }),
        presenceRecord("old", { revision: 4, name: hostile, kid: hostile }),
      ],
      clockAheadMs: 0,
      health: {
        failure,
        stale: failure,
        activationBlocked: { [`${hostile}2`]: failure },
        unavailable: { [hostile]: failure },
        destroyFailed: { [hostile]: failure },
        store: { lastAttemptAt: start, lastError: failure, revision: 5, revisionSince: start - hour },
      },
    },
    refused: failure,
    events: [{ at: start, level: "error", message: hostile, details: { [hostile]: hostile } }],
  };
}

const plain = page(statusOf(knownWith("name")), served, nonce);

const servedWith = (text: string): ServedSet => ({
  status: text,
  headers: [["ETag", text]],
  body: JSON.stringify({ keys: [{ kid: text }] }),
});

/** Returns the elements and attributes, without text and values. */
const skeleton = (markup: string): string[] =>
  (markup.match(/<\/?[a-z][^>]*>/g) ?? []).map((tag) => tag.replaceAll(/"[^"]*"/g, '""'));

describe("external input is rendered as text", () => {
  const hostile = [
    '"><script>alert(1)</script>',
    "'><img src=x onerror=alert(1)>",
    "</pre></title></style></script><h1>",
    "&lt;b&gt; &amp; <!--",
    '{"keys":"</script>"}',
    "${x}\\u003c `",
    "a\u202Eb\u0000c\u001b[31m\nd",
  ];
  for (const text of hostile) {
    test(JSON.stringify(text), () => {
      const markup = page(statusOf(knownWith(text)), servedWith(text), nonce);
      const harmless = page(statusOf(knownWith("name")), servedWith("name"), nonce);
      assert.deepEqual(skeleton(markup), skeleton(harmless), "the same elements with the same attributes");
      for (const character of ["\u202E", "\0", "\u001b"]) assert.ok(!markup.includes(character));
      const failed = page(statusOf(knownWith(text)), { failure: text }, nonce);
      assert.doesNotMatch(failed, /<(?:img|b>|!--)/);
    });
  }

  test("a template escapes strings but leaves nested markup unchanged", () => {
    assert.equal(
      html`<a title="${`"'<&>`}">${html`<b>${1}</b>`}${undefined}${[html`x`, html`y`]}</a>`.text,
      '<a title="&quot;&#39;&lt;&amp;&gt;"><b>1</b>xy</a>',
    );
    assert.equal(lines("a<b\n\u001bc").text, "a&lt;b\n\\u{1b}c");
  });
});

describe("the page", () => {
  test("allows only its own script and style", () => {
    assert.deepEqual(plain.match(/<script[^>]*>/g), [`<script nonce="${nonce}">`]);
    assert.deepEqual(plain.match(/<style[^>]*>/g), [`<style nonce="${nonce}">`]);
    const markup = plain.replace(style, "").replace(script, "");
    assert.doesNotMatch(markup, /\son\w+=|\sstyle=|javascript:|<(?:iframe|object|embed|form|base)\b/);
    assert.deepEqual(
      [...new Set([...markup.matchAll(/(?:href|src)="([^"]{0,5})/g)].map(([, to]) => to))],
      ["data:", "#main", "https"],
    );
    // Guides, which only a click opens.
    const fetched = markup.replaceAll(
      /<a href="https:\/\/github\.com\/jwksd\/jwksd\/blob\/main\/docs\/[\w.#-]+">/g,
      "",
    );
    assert.doesNotMatch(fetched, /(?:href|src)="https/);
    assert.doesNotMatch(style + script, /https?:|url\((?!#)|@import/);
    assert.match(pagePolicy(nonce), /^default-src 'none'; script-src 'nonce-bm9uY2U='; style-src 'nonce-bm9uY2U=';/);
    assert.doesNotMatch(pagePolicy(nonce), /unsafe|\*/);
  });

  test("has unique ids, and its labels refer only to existing elements", () => {
    const ids = [...plain.matchAll(/\sid="([^"]*)"/g)].map(([, id]) => id);
    assert.equal(new Set(ids).size, ids.length);
    for (const [, id] of plain.matchAll(/(?:aria-labelledby|data-target)="([^"]*)"/g)) assert.ok(ids.includes(id), id);
    for (const id of Object.keys(pageParts(statusOf(knownWith("name")), served))) assert.ok(ids.includes(id), id);
  });

  test("lists errors first, each with a command", () => {
    const faults = [...plain.matchAll(/<li class="fault (error|warning)">/g)].map(([, severity]) => severity);
    assert.ok(faults.indexOf("warning") > faults.lastIndexOf("error"));
    const count = (severity: string): number => faults.filter((one) => one === severity).length;
    assert.ok(plain.includes(`${count("error")} errors and ${count("warning")} warnings.`));
    const text = plain.indexOf("This process is stale, so it does not sign and is not ready: ");
    assert.ok(text > 0 && text < plain.indexOf("At a glance"));
    for (const command of [
      "jwksd keys --data /srv/keys",
      "jwksd policy --rotate-every-days 30 --data /srv/keys",
      "kill -HUP 42",
    ]) {
      assert.match(plain, new RegExp(`<pre[^>]*>${command}</pre>`));
    }
  });

  test("marks only this process as stale", () => {
    const { replicas } = pageParts(statusOf(knownWith("name")), served);
    assert.equal(replicas.text.match(/class="badge stale"/g)?.length, 1);
    assert.match(replicas.text, /this process<\/span>[^]*?badge stale/);
  });

  test("never shows a past event as being in the future, whichever clock is ahead", () => {
    const known = knownWith("name");
    const health = { ...known.manager?.health, store: { lastSuccessAt: start + 19_000 } };
    const ahead = { ...known, manager: { ...known.manager, health } } as ServiceSnapshot;
    assert.match(pageParts(statusOf(ahead), served).glance.text, /last reached <time[^>]*>now<\/time>/);
  });

  test("contains no private key, wrapped or not", () => {
    assert.doesNotMatch(plain, /wrapped name|\bjwe\b/);
  });

  test("is complete whether the keys come from files or from a saved set", () => {
    const files = { ...knownWith("name"), manager: undefined, refused: undefined, notReady: undefined };
    const filesPage = page(statusOf(files), served, nonce);
    assert.match(filesPage, /No errors or warnings\./);
    assert.match(filesPage, /jwksd does not manage these keys/);
    const outage = { at: start, code: "ERR_STORE_UNAVAILABLE", message: "no route to host" };
    const savedSetPage = page(statusOf({ ...files, withoutStore: { savedAt: start - hour, outage } }), served, nonce);
    assert.match(
      savedSetPage,
      /The store has been unreachable since startup, so jwksd is publishing the set from 2026-11-20 11:00:00 UTC/,
    );
  });

  test("lists a failed request for the JWK Set first", () => {
    const status = statusOf({ ...knownWith("name"), manager: undefined });
    const first = (served: ServedSet): string => pageParts(status, served).health.text.split("</li>")[0] ?? "";
    assert.match(
      first({ failure: "ECONNREFUSED" }),
      /JWKS_UNANSWERED[^]*request for the JWK Set failed: ECONNREFUSED\./,
    );
    assert.match(
      first({ ...servedWith("x"), status: "503 Busy" }),
      /request for the JWK Set returned 503 Busy\.[^]*curl -i https:/,
    );
    assert.doesNotMatch(first(served), /JWKS_UNANSWERED/);
  });

  test("updates relative times as time passes, but not the headline, because a screen reader would read it out again", () => {
    const known = { ...knownWith("name"), manager: undefined };
    const before = pageParts(statusOf(known), served);
    const after = pageParts(statusOf({ ...known, now: start + 1_000 }), served);
    assert.equal(before.headline.text, after.headline.text);
    assert.notEqual(before.events.text, after.events.text);
  });
});
