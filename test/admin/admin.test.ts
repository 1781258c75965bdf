import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import { refusalOf } from "../../src/base/local-request-check.ts";
import { startAdmin } from "../../src/service/admin/admin.ts";
import { loggerOf } from "../../src/service/config/logger.ts";
import { adminArgs, scrape } from "../support/scrape.ts";
import { keySetText, startService, temporaryFolder } from "../support/service.ts";
import { exchange } from "../support/wire.ts";

type Headers = Readonly<Record<string, string | undefined>>;

function statusOf(path: string, headers: Headers, listenHost = "127.0.0.1", localAddress = "127.0.0.1"): number {
  return refusalOf({ path, headers, localAddress }, listenHost) ?? 200;
}

describe("accepts only a loopback name or the listening address in the Host header, to prevent DNS rebinding", () => {
  const table: readonly (readonly [
    host: string | undefined,
    page: number,
    probe: number,
    listen?: string,
    local?: string,
  ])[] = [
    [undefined, 200, 200],
    ["127.0.0.1:9901", 200, 200],
    ["127.9.9.9", 200, 200],
    ["localhost:9901", 200, 200],
    ["LOCALHOST", 200, 200],
    ["localhost.:9901", 200, 200],
    ["jwksd.localhost", 200, 200],
    ["[::1]:9901", 200, 200],
    ["[0:0:0:0:0:0:0:1]", 200, 200],
    ["evil.example", 421, 421],
    ["evil.example:9901", 421, 421],
    ["localhost.evil.example", 421, 421],
    ["127.0.0.1.evil.example", 421, 421],
    ["evillocalhost", 421, 421],
    ["127.0.0.1@evil.example", 421, 421],
    ["", 421, 200],
    ["10.1.2.3:9901", 421, 200],
    ["[fd00::7]:9901", 421, 200],
    // It listens on every address, so the address that received the request is allowed.
    ["10.1.2.3:9901", 200, 200, "0.0.0.0", "10.1.2.3"],
    ["10.1.2.3:9901", 200, 200, "::", "::ffff:10.1.2.3"],
    ["[fd00::7]:9901", 200, 200, "::", "fd00::7"],
    ["10.1.2.4:9901", 421, 200, "0.0.0.0", "10.1.2.3"],
    // It listens on a host name.
    ["ops.internal:9901", 200, 200, "ops.internal", "10.1.2.3"],
    ["other.internal:9901", 421, 421, "ops.internal", "10.1.2.3"],
    ["[fd00:0::7]", 200, 200, "fd00::7", "fd00::7"],
  ];
  for (const [host, page, probe, listen, local] of table) {
    test(`${host} at ${listen ?? "127.0.0.1"}`, () => {
      assert.equal(statusOf("/", { host }, listen, local), page);
      assert.equal(statusOf("/metrics", { host }, listen, local), page);
      assert.equal(statusOf("/livez", { host }, listen, local), probe);
      assert.equal(statusOf("/readyz", { host }, listen, local), probe);
    });
  }
});

describe("requests from other websites are refused", () => {
  const host = "127.0.0.1:9901";
  const navigation = { "sec-fetch-mode": "navigate", "sec-fetch-dest": "document" };
  const table: readonly (readonly [name: string, headers: Headers, page: number, others: number])[] = [
    ["no browser", {}, 200, 200],
    ["a typed address", { "sec-fetch-site": "none", ...navigation }, 200, 200],
    ["its own script", { "sec-fetch-site": "same-origin", "sec-fetch-mode": "cors" }, 200, 200],
    ["its own script, with Origin", { origin: `http://${host}` }, 200, 200],
    ["a fetch from another site", { "sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors" }, 403, 403],
    ["a fetch from another port", { "sec-fetch-site": "same-site", "sec-fetch-mode": "cors" }, 403, 403],
    ["another site's Origin", { origin: "https://evil.example" }, 403, 403],
    ["another port's Origin", { origin: "http://127.0.0.1:8080" }, 403, 403],
    ["an opaque Origin", { origin: "null" }, 403, 403],
    ["a followed link", { "sec-fetch-site": "cross-site", ...navigation }, 200, 403],
    ["a frame", { "sec-fetch-site": "cross-site", ...navigation, "sec-fetch-dest": "iframe" }, 403, 403],
  ];
  for (const [name, headers, page, others] of table) {
    test(name, () => {
      assert.equal(statusOf("/", { host, ...headers }), page);
      assert.equal(statusOf("/metrics", { host, ...headers }), others);
      assert.equal(statusOf("/readyz", { host, ...headers }), others);
    });
  }
});

type Scope = Parameters<typeof temporaryFolder>[0];

async function withKeys(t: Scope, ...args: readonly string[]): Promise<readonly string[]> {
  const keys = join(await temporaryFolder(t), "keys.json");
  await writeFile(keys, keySetText("a", "b"), { mode: 0o600 });
  return ["--keys", keys, ...adminArgs, ...args];
}

const responses = (document: string, code: number): string =>
  `jwksd_responses_total{document="${document}",code="${code}"}`;

describe("/metrics", () => {
  test("escapes control characters in a kid that comes from a key file", async (t) => {
    const keys = join(await temporaryFolder(t), "keys.json");
    await writeFile(keys, keySetText("\u{1b}]0;owned\u{7}\n\u{9b}31m"), { mode: 0o600 });
    const { text } = await scrape(await startService(t, ["--keys", keys, ...adminArgs]));
    assert.match(text, /^jwksd_key_info\{kid="\\\\u\{1b\}\]0;owned\\\\u\{7\}\\\\u\{a\}\\\\u\{9b\}31m",/m);
    assert.doesNotMatch(text, /[^\n -~]/);
  });

  test("counts responses by document and status, including responses to requests that the parser refuses, without putting request data in labels", async (t) => {
    const service = await startService(t, await withKeys(t));
    const ask = (path: string, init?: RequestInit) => fetch(`http://127.0.0.1:${service.port}${path}`, init);
    const etag = (await ask("/jwks")).headers.get("etag") ?? "";
    await ask("/jwks", { headers: { "If-None-Match": etag } });
    await ask("/jwks?forged", { method: "DELETE" });
    await ask("/forged");
    await ask("/.well-known/openid-configuration");
    await exchange(service.port, "GET /jwks HTTP/1.1\r\nHost: for ged\r\nConnection: close\r\n\r\n");
    await exchange(service.port, "FORGED \r\n\r\n");
    const { samples, text } = await scrape(service);
    const expected = {
      [responses("jwks", 200)]: 1,
      [responses("jwks", 304)]: 1,
      [responses("jwks", 405)]: 1,
      [responses("discovery", 200)]: 1,
      [responses("none", 404)]: 1,
      // An invalid host, and a method that the parser does not know.
      [responses("none", 400)]: 1,
      [responses("none", 405)]: 1,
    };
    for (const [name, value] of Object.entries(expected)) assert.equal(samples[name], value, name);
    assert.ok(!/forged/i.test(text));
    assert.equal(samples['jwksd_key_info{kid="a",use="sig",alg="ES256",state="active",private_half="elsewhere"}'], 1);
    assert.equal(samples["jwksd_ready"], 1);
    assert.ok((samples["process_resident_memory_bytes"] ?? 0) > 0);
    assert.ok(Object.keys(samples).some((name) => name.startsWith("nodejs_eventloop_lag")));
  });

  test("returns OpenMetrics if the Accept header allows it, and the Prometheus text format otherwise", async (t) => {
    const service = await startService(t, await withKeys(t));
    const prometheus = "application/openmetrics-text;version=1.0.0;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
    for (const accept of [undefined, prometheus, "text/plain", "application/openmetrics-text;q=0, text/plain"]) {
      const { status, contentType, text, samples } = await scrape(service, accept);
      const isOpen = accept === prometheus;
      assert.equal(status, 200);
      assert.equal(
        contentType,
        isOpen
          ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
          : "text/plain; version=0.0.4; charset=utf-8",
      );
      assert.equal(text.endsWith("\n# EOF\n"), isOpen);
      // OpenMetrics names a counter's family without its suffix, and each sample with it.
      assert.ok(text.includes(`# TYPE jwksd_responses${isOpen ? "" : "_total"} counter\n`), text.slice(0, 2_000));
      assert.equal(samples[responses("jwks", 200)], 0);
      assert.ok("process_cpu_seconds_total" in samples);
    }
  });

  test("is served only on the admin address, and only for GET and HEAD", async (t) => {
    const service = await startService(t, await withKeys(t));
    assert.equal((await fetch(`http://127.0.0.1:${service.port}/metrics`)).status, 404);
    const admin = service.log.find(({ msg }) => msg === "started")?.["admin"] as string;
    assert.equal((await fetch(`${admin}/metrics`, { method: "POST" })).status, 405);
    assert.equal((await fetch(`${admin}/toString`)).status, 404);
    const head = await fetch(`${admin}/metrics`, { method: "HEAD" });
    assert.deepEqual([head.status, await head.text()], [200, ""]);
  });
});

const fail = async () => Promise.reject(new Error("Cannot find module '/opt/jwksd/prom-client.mjs'"));

test("logs a rendering error and returns 500 with a problem document", async (t) => {
  const logged: unknown[] = [];
  const log = loggerOf((level, fields, message) => logged.push([level, fields, message]));
  const server = await startAdmin({ host: "127.0.0.1", port: 0 }, { "/metrics": fail }, log);
  t.after(server.stop);
  for (const method of ["GET", "HEAD"]) {
    const response = await fetch(`http://127.0.0.1:${server.port}/metrics`, { method });
    assert.equal(response.status, 500);
    assert.equal(response.headers.get("content-type"), "application/problem+json");
    const body = await response.text();
    assert.ok(method === "HEAD" ? body === "" : !body.includes("prom-client"), body);
    const fields = { admin: "127.0.0.1:0", path: "/metrics", code: "ERR_INTERNAL" };
    const message = "failed to render a page: Cannot find module '/opt/jwksd/prom-client.mjs'";
    assert.deepEqual(logged.splice(0), [["error", fields, message]]);
  }
});
