// orders.test.cjs
const { before, test } = require("node:test");
const assert = require("node:assert/strict");
const { createTestIssuer } = require("jwksd/testing");
const { orders } = require("./orders.mjs");

/** @type {import("jwksd/testing").TestIssuer} */
let issuer;
before(async () => {
  issuer = await createTestIssuer({ issuer: "https://login.example.com", audience: "https://api.example.com" });
  globalThis.fetch = issuer.fetch;
});

test("a token with the scope is accepted", async () => {
  const headers = { Authorization: `Bearer ${await issuer.token({ scope: "orders:read" })}` };
  const response = await orders(new Request("https://api.example.com/orders", { headers }));
  assert.equal(await response.text(), '{"of":"alice"}');
});
