// Renders the picture of the admin page in docs/operations.md, with Chromium: node scripts/page-picture.ts docs/page.png

import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { chromium } from "playwright-core";
import type { StoredEvent } from "../src/rotation/custody/document.ts";
import type { PresenceRecord } from "../src/rotation/custody/presence-records.ts";
import type { LiveRecord } from "../src/rotation/rules/key-records.ts";
import { rotationPolicy } from "../src/rotation/rules/policy.ts";
import { page } from "../src/service/admin/page/page.ts";
import type { ServiceSnapshot } from "../src/service/admin/service-snapshot.ts";
import { statusOf } from "../src/service/admin/status.ts";

const [file = "page.png"] = process.argv.slice(2);
const now = Date.parse("2026-11-20T12:00:00Z");
const minute = 60_000;
const day = 1_440 * minute;
const publicJwk = { kty: "EC", crv: "P-256", x: "x", y: "y" } as const;
const common = { use: "sig", alg: "ES256", thumbprint: "", publicJwk, privateHalf: { jwe: "" } } as const;

const active: LiveRecord = {
  ...common,
  kid: "bEoAsYhH2QvSUYvXnqhGUSQyRDcV3TiMTmCoEBvFKYk",
  state: "active",
  announcedAt: now - 90 * day,
  activatedAt: now - 89 * day - 300 * minute,
};
const next: LiveRecord = {
  ...common,
  kid: "q0Zf6eVYlmzRcXwQk9nA3bGdyS1uTgH8PjI5rLoD2_E",
  state: "announced",
  announcedAt: now - 301 * minute,
  publishedAt: now - 300 * minute,
};
const presence = (name: string, minutesAgo: number): PresenceRecord => ({
  id: name,
  name,
  revision: 12,
  kid: active.kid,
  signs: true,
  wrappingKeys: [],
  at: now - minutesAgo * minute,
});
function event(
  number: number,
  at: number,
  type: StoredEvent["type"],
  { kid, use }: LiveRecord,
  reason: string,
): StoredEvent {
  return { number, at, type, kid, use, reason };
}

const known: ServiceSnapshot = {
  now,
  phase: "running",
  issuer: "https://login.example.com",
  jwksUri: "https://login.example.com/jwks",
  pid: 42,
  commandFlags: "",
  isShortBySetting: false,
  isShort: true,
  published: [],
  manager: {
    document: {
      revision: 12,
      policy: rotationPolicy(),
      records: [active, next],
      targets: [],
      commits: [],
      events: [
        event(1, now - 90 * day, "announced", active, "the next key is due"),
        event(2, now - 89 * day - 300 * minute, "activated", active, "every process has published it for 86400 s"),
        event(3, now - 301 * minute, "announced", next, "the next key is due"),
      ],
    },
    policyGiven: {},
    health: {
      activationBlocked: {},
      unavailable: {},
      destroyFailed: {},
      store: { lastAttemptAt: now, lastSuccessAt: now, revision: 12, revisionSince: now - 300 * minute },
    },
    processes: [presence("login-1", 2), presence("login-2", 7), presence("login-3", 4)],
    unread: 0,
    id: "login-1",
    clockAheadMs: 0,
  },
  events: [],
};
const served = { status: "200 OK", headers: [], body: '{"keys":[]}' };

const server = createServer((_, response) => {
  response.writeHead(200, { "Content-Type": "text/html" });
  response.end(page(statusOf(known), served, ""));
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
