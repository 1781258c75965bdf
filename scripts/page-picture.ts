// Makes the picture of the page in README.md, with Chromium: node scripts/page-picture.ts docs/page.png
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { chromium } from "playwright-core";
import { page } from "../src/service/admin/page/page.ts";
import { rotationPolicy } from "../src/rotation/rules/policy.ts";
import type { Known } from "../src/service/admin/known.ts";
import { statusOf } from "../src/service/admin/status.ts";
import type { KeyRecord, Lease } from "../src/rotation/store/store.ts";

const [file = "page.png"] = process.argv.slice(2);
const now = Date.parse("2026-11-20T12:00:00Z");
const minute = 60_000;
const day = 1_440 * minute;
const policy = rotationPolicy();
const publicJwk = { kty: "EC", crv: "P-256", x: "x", y: "y" } as const;
const common = { use: "sig", alg: "ES256", publicJwk, privateHalf: { jwe: "" } } as const;

const active: KeyRecord = {
  ...common,
  kid: "bEoAsYhH2QvSUYvXnqhGUSQyRDcV3TiMTmCoEBvFKYk",
  state: "active",
  announcedAt: now - 90 * day,
  activatedAt: now - 89 * day - 300 * minute,
};
const next: KeyRecord = {
  ...common,
  kid: "q0Zf6eVYlmzRcXwQk9nA3bGdyS1uTgH8PjI5rLoD2_E",
  state: "announced",
  announcedAt: now - 301 * minute,
  publishedAt: now - 300 * minute,
};
const lease = (name: string, heardMinutes: number): Lease => ({
  id: name,
  name,
  publishes: 12,
  signsWith: [active.kid],
  serial: 1,
  forMs: policy.leaseSeconds * 1_000,
  until: now - heardMinutes * minute + policy.leaseSeconds * 1_000,
});
const leases = [lease("login-1", 2), lease("login-2", 7), lease("login-3", 4)];
const known: Known = {
  now,
  phase: "running",
  issuer: "https://login.example.com",
  jwksUri: "https://login.example.com/jwks",
  pid: 42,
  isShortBySetting: false,
  isShort: true,
  published: [],
  manager: {
    policy,
    records: [active, next],
    health: {
      heldBack: {},
      unopened: {},
      undestroyed: {},
      store: {
        lastAttemptAt: now,
        lastSuccessAt: now,
        revision: 12,
        revisionSince: now - 300 * minute,
        loaded: { leases, now, at: now },
      },
    },
    lease: { id: "login-1", publishes: 12, signsWith: [active.kid] },
    audit: [
      {
        number: 3,
        at: now - 301 * minute,
        type: "announced",
        kid: next.kid,
        use: "sig",
        reason: "it is time for the next key",
      },
      {
        number: 2,
        at: now - 89 * day - 300 * minute,
        type: "activated",
        kid: active.kid,
        use: "sig",
        reason: "every replica has published it for 86400 s",
      },
      {
        number: 1,
        at: now - 90 * day,
        type: "announced",
        kid: active.kid,
        use: "sig",
        reason: "it is time for the next key",
      },
    ],
  },
  events: [],
};
const answer = { status: "200 OK", headers: [], body: '{"keys":[]}' };

const server = createServer((request, response) => {
  const isStream = request.url === "/events";
  response.writeHead(200, { "Content-Type": isStream ? "text/event-stream" : "text/html" });
  if (isStream) response.write("\n");
  else response.end(page(statusOf(known), answer, ""));
}).listen(0, "127.0.0.1");
await once(server, "listening");
const browser = await chromium.launch({ executablePath: "/usr/bin/chromium-headless-shell", args: ["--no-sandbox"] });
const opened = await browser.newPage({ viewport: { width: 1160, height: 900 }, colorScheme: "light" });
await opened.goto(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
await opened.locator("#live", { hasText: /^Live$/ }).waitFor();
const steps = await opened.locator(".columns").boundingBox();
await opened.screenshot({
  path: file,
  fullPage: true,
  clip: { x: 0, y: 0, width: 1160, height: (steps?.y ?? 700) + 4 },
});
await browser.close();
server.closeAllConnections();
server.close();
