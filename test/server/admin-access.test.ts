import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { refusalOf } from "../../src/service/admin/admin-access.ts";

type Headers = Readonly<Record<string, string | undefined>>;

function statusOf(path: string, headers: Headers, listenHost = "127.0.0.1", localAddress = "127.0.0.1"): number {
  return refusalOf({ path, headers, localAddress }, listenHost)?.status ?? 200;
}

describe("Host: loopback names and the address itself, so that no name of another leads here", () => {
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
    // It listens on every address: on the one to which the request came.
    ["10.1.2.3:9901", 200, 200, "0.0.0.0", "10.1.2.3"],
    ["10.1.2.3:9901", 200, 200, "::", "::ffff:10.1.2.3"],
    ["[fd00::7]:9901", 200, 200, "::", "fd00::7"],
    ["10.1.2.4:9901", 421, 200, "0.0.0.0", "10.1.2.3"],
    // It listens on a name.
    ["ops.internal:9901", 200, 200, "ops.internal", "10.1.2.3"],
    ["other.internal:9901", 421, 421, "ops.internal", "10.1.2.3"],
    ["[fd00:0::7]", 200, 200, "fd00::7", "fd00::7"],
  ];
  for (const [host, page, probe, listen, local] of table) {
    test(`${host} at ${listen ?? "127.0.0.1"}`, () => {
      assert.equal(statusOf("/", { host }, listen, local), page);
      assert.equal(statusOf("/events", { host }, listen, local), page);
      assert.equal(statusOf("/metrics", { host }, listen, local), page);
      assert.equal(statusOf("/livez", { host }, listen, local), probe);
      assert.equal(statusOf("/readyz", { host }, listen, local), probe);
    });
  }
});

describe("requests that other web sites make are refused", () => {
  const host = "127.0.0.1:9901";
  const navigation = { "sec-fetch-mode": "navigate", "sec-fetch-dest": "document" };
  const table: readonly (readonly [name: string, headers: Headers, page: number, events: number])[] = [
    ["no browser", {}, 200, 200],
    ["typed in", { "sec-fetch-site": "none", ...navigation }, 200, 200],
    ["its own script", { "sec-fetch-site": "same-origin", "sec-fetch-mode": "cors" }, 200, 200],
    ["its own script, with Origin", { origin: `http://${host}` }, 200, 200],
    ["a fetch of another site", { "sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors" }, 403, 403],
    ["a fetch of another port", { "sec-fetch-site": "same-site", "sec-fetch-mode": "cors" }, 403, 403],
    ["an Origin of another site", { origin: "https://evil.example" }, 403, 403],
    ["an Origin of another port", { origin: "http://127.0.0.1:8080" }, 403, 403],
    ["an Origin that is opaque", { origin: "null" }, 403, 403],
    ["a link that is followed", { "sec-fetch-site": "cross-site", ...navigation }, 200, 403],
    ["a frame", { "sec-fetch-site": "cross-site", ...navigation, "sec-fetch-dest": "iframe" }, 403, 403],
  ];
  for (const [name, headers, page, events] of table) {
    test(name, () => {
      assert.equal(statusOf("/", { host, ...headers }), page);
      assert.equal(statusOf("/events", { host, ...headers }), events);
      assert.equal(statusOf("/readyz", { host, ...headers }), events);
    });
  }
});
