import assert from "node:assert/strict";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { type IncomingMessage, type OutgoingHttpHeaders, request } from "node:http";
import { join } from "node:path";
import { describe, test } from "node:test";
import { type LiveRecord, liveRecords } from "../../src/rotation/rules/key-records.ts";
import { readStore, unwrapAll, wrappingKeyOf } from "../support/managed.ts";
import { startWithAdmin } from "../support/scrape.ts";
import { temporaryFolder } from "../support/service.ts";

/** Sends a request with any headers. */
async function ask(url: URL, headers: OutgoingHttpHeaders = {}, method = "GET"): Promise<IncomingMessage> {
  const sent = request(url, { method, headers, agent: false, setHost: !("Host" in headers) });
  sent.end();
  const [response] = (await once(sent, "response")) as [IncomingMessage];
  return response.setEncoding("utf8");
}

async function textOf(response: IncomingMessage): Promise<string> {
  return (await response.toArray()).join("");
}

describe("the admin page", () => {
  test("shows the store's keys and the JWK Set response, but no secret", async (t) => {
    const data = await temporaryFolder(t);
    const { service, admin } = await startWithAdmin(t, "--data", data, "--replica-name", "here & there");
    const response = await ask(admin);
    const text = await textOf(response);
    assert.equal(response.statusCode, 200);
    assert.equal(response.headers["content-type"], "text/html; charset=utf-8");
    assert.equal(response.headers["cache-control"], "no-store");
    const [, nonce = ""] = /'nonce-([^']{24})'/.exec(response.headers["content-security-policy"] as string) ?? [];
    assert.ok(text.includes(`<script nonce="${nonce}">`));
    assert.match(text, /No errors or warnings\./);
    assert.match(text, /here &amp; there/);
    const jwks = await fetch(service.jwksUri);
    assert.ok(text.includes(`etag: ${jwks.headers.get("etag")?.replaceAll('"', "&quot;")}`));
    const { records } = await readStore(join(data, "keys.db"));
    const [{ kid, privateHalf }] = liveRecords(records) as [LiveRecord];
    assert.ok(text.includes(`<code>${kid}</code>`));
    const { jwe } = privateHalf as { jwe: string };
    const parts = [await wrappingKeyOf(data), ...jwe.split(".").filter((part) => part.length > 8)];
    const savedSet = await readFile(join(data, "saved-set.json"), "utf8");
    const { mac } = JSON.parse(savedSet) as { mac: string };
    const [{ d }] = (await unwrapAll(records, parts[0] as string)) as [{ d: string }];
    for (const secret of [...parts, mac, d, "&quot;d&quot;"]) assert.ok(!text.includes(secret), secret);

    const other = await ask(admin);
    assert.notEqual(other.headers["content-security-policy"], response.headers["content-security-policy"]);
    other.resume();
    const head = await ask(admin, {}, "HEAD");
    assert.equal(await textOf(head), "");
    const post = await ask(admin, {}, "POST");
    assert.equal(post.statusCode, 405);
    post.resume();
    assert.equal((await ask(new URL("/constructor", admin))).resume().statusCode, 404);
    assert.equal((await ask(admin, { Host: "rebound.example:9901" })).resume().statusCode, 421);
    assert.equal((await ask(admin, { Origin: "https://evil.example" })).resume().statusCode, 403);
  });
});
