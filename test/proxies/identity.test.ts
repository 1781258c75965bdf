import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { skipWithout } from "../support/parts.ts";
import { isSoak } from "../support/soak.ts";
import { proxies } from "./proxies.ts";
import { ask, scopes, startSite } from "./site.ts";

// Values of identity headers, which users of a provider can choose, on their way to the program.

const subjects = [
  ["alice", "a b", "100%", "%61", "a,b", "a;b=c", '"quoted"', "a\\b", "<script>", "http://x/?a=b&c=d", "-", "0"],
  ["{http.request.uri}", "{env.HOME}", "{http.request.header.Authorization}", "$request_uri", "${jwksd_issuer}", "$"],
  [
    "ünïcode",
    "名前",
    "\u{1f600}",
    "\u0000",
    "a\r\nX-Jwksd-Issuer: mallory",
    "\r\n\r\nGET /admin/x HTTP/1.1",
    "\t",
    "\u007f",
  ],
].flat();

/** Four claims, whose headers have almost the largest size together. */
const letters = ["a", "b", "c", "d"];
const claims = letters.map((letter) => `X-Jwksd-Claim-${letter.toUpperCase()}`);

for (const proxy of isSoak ? proxies : []) {
  describe(`through ${proxy.name}`, { skip: skipWithout(proxy.name) }, () => {
    test("the program gets every subject as the provider wrote it", async (t) => {
      const { port, token, setup } = await startSite(t, proxy);
      for (const sub of subjects) {
        const { seen } = await ask(port, { target: "/orders/1" }, token(undefined, { sub }));
        assert.equal(decodeURIComponent(seen?.identity["subject"] ?? "none"), sub);
        assert.equal(seen?.identity["issuer"], setup.issuer);
      }
    });

    test("identity headers of 8 kB arrive whole; a longer value is refused", async (t) => {
      const { port, token } = await startSite(t, proxy, { claims, host: { claims: letters } });
      // A letter of two bytes has six characters in a header. nginx refuses lines of more than 8 KiB, so the token must be short.
      const identityWith = async (count: number) => {
        const values = Object.fromEntries(letters.map((letter) => [letter, "\u00fc".repeat(count)]));
        const { status, seen } = await ask(port, { target: "/orders/1" }, token(scopes.orders, values));
        return [status, ...letters.map((letter) => seen?.identity[`claim-${letter}`]?.length)];
      };
      assert.deepEqual(await identityWith(333), [200, 1_998, 1_998, 1_998, 1_998]);
      assert.deepEqual(await identityWith(342), [403, ...letters.map(() => undefined)]);
    });
  });
}
