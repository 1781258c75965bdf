import assert from "node:assert/strict";
// orders.test.mjs
import { test } from "node:test";
import { createTestIssuer } from "jwksd/testing";
import { orders } from "./orders.mjs";

const issuer = await createTestIssuer({ issuer: "https://login.example.com", audience: "https://api.example.com" });
globalThis.fetch = issuer.fetch; // the guard fetches the keys from it

/** @param {string} token */
const ask = (token) =>
  orders(new Request("https://api.example.com/orders", { headers: { Authorization: `Bearer ${token}` } }));

test("a token with the scope is accepted", async () => {
  const response = await ask(await issuer.token({ sub: "bob", scope: "orders:read" }));
  assert.equal(await response.text(), '{"of":"bob"}');
});

test("a token without the scope and an expired token are refused", async () => {
  assert.equal((await ask(await issuer.token({ scope: "profile" }))).status, 403);
  assert.equal((await ask(await issuer.token({ scope: "orders:read" }, { expired: true }))).status, 401);
});

test("a key rotation and an outage change nothing", async () => {
  await issuer.rotate();
  assert.equal((await ask(await issuer.token({ scope: "orders:read" }))).status, 200);
  issuer.goOffline();
  assert.equal((await ask(await issuer.token({ scope: "orders:read" }))).status, 200);
  issuer.goOnline();
});
