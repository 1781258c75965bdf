// A request gets keys and tokens only from the issuer that it names, whatever its spelling.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { decodeJwt, decodeProtectedHeader } from "jose";
import { createIssuerTemplate } from "../../src/rotation/issuers/issuer-template.ts";
import { createIssuers } from "../../src/rotation/issuers/issuers.ts";
import type { Issuers } from "../../src/rotation/issuers/types.ts";
import { memoryStore } from "../../src/rotation/store/memory.ts";
import type { Register } from "../../src/rotation/store/register.ts";
import { newWrappingKey } from "../support/managed.ts";
import { randomFrom } from "../support/random.ts";
import { soak } from "../support/soak.ts";

const discovery = ".well-known/openid-configuration";
const metadata = ".well-known/oauth-authorization-server";

describe("a template", () => {
  const rows: [template: string, request: [target: string, host: string | undefined], issuer: string | undefined][] = [
    ["https://op.example/*", ["/a/jwks", "op.example"], "https://op.example/a"],
    ["https://op.example/*", ["/a/jwks?x=/b/jwks", undefined], "https://op.example/a"],
    ["https://op.example/*", [`/${discovery}/a`, undefined], "https://op.example/a"],
    ["https://op.example/*", [`/${metadata}/a`, undefined], "https://op.example/a"],
    ["https://op.example/*", ["/jwks", undefined], undefined],
    ["https://op.example/*", [`/${discovery}`, undefined], undefined],
    ["https://op.example/*", ["/../jwks", undefined], undefined],
    ["https://op.example/*", ["/a/login", undefined], undefined],
    ["https://op.example/*", ["//a/jwks", undefined], undefined],
    ["https://op.example/*", ["/%61/jwks", undefined], undefined],
    ["https://op.example/t/*/v1/", ["/t/a/v1/jwks", undefined], "https://op.example/t/a/v1/"],
    ["https://op.example/t/*/v1/", ["/a/v1/jwks", undefined], undefined],
    ["https://op.example/t/t-*", ["/t/t-a/jwks", undefined], "https://op.example/t/t-a"],
    ["https://*.example", ["/jwks", "A.example:8443"], "https://a.example"],
    ["https://*.example", ["http://a.example/jwks", "b.example"], "https://a.example"],
    ["https://*.example", ["/jwks", "a.b.example"], undefined],
    ["https://*.example", ["/jwks", undefined], undefined],
    ["https://*.example", ["/jwks", "a.example:x"], undefined],
    ["https://*.example", ["/jwks", "a.example@b.example"], undefined],
    ["https://*.example", ["/jwks", "\u212A.example"], undefined],
    ["https://*.example:8443/op", ["/op/jwks", "a.example"], "https://a.example:8443/op"],
    ["https://*", ["/jwks", "login.a.example"], "https://login.a.example"],
  ];
  for (const [template, [target, host], issuer] of rows)
    test(`${template}: ${target} with Host ${JSON.stringify(host)} is ${issuer ?? "no issuer"}`, () => {
      assert.equal(createIssuerTemplate(template).issuerOf(target, host), issuer);
    });

  const wrong = [
    "https://op.example",
    "https://*.example/*",
    "http://*.example",
    "https://OP.example/*",
    "*",
    "https://op.example/*?",
  ];
  for (const template of wrong)
    test(`${template} is rejected`, () =>
      assert.throws(() => createIssuerTemplate(template), { code: /^ERR_(ISSUER|PATH)_INVALID$/ }));

  test("does not match a host that is not in canonical form", () => {
    const names = createIssuerTemplate("https://*");
    const hosts = ["1.2.3", "0x7f.1", "a..b", "127.0.0.1", "A.example", "a.example.", "b\u00FCcher.example", ""];
    assert.deepEqual(
      hosts.filter((host) => names.holds(`https://${host}`)),
      ["a..b", "127.0.0.1"],
    );
  });
});

const tries = soak(1_000_000, 3_000);
const labels = ["a", "b", "ab", "a-b", "jwks", "xn--bcher-kva", "well-known", "k"];
const segments = [...labels, "A", "aB", "a.b", "a..b", "a~", "_", "openid-configuration"];
const templates: Readonly<Record<string, readonly string[]>> = {
  "https://op.example/*": segments,
  "https://op.example/t/*/v1": segments,
  "https://*.op.example": labels,
  "https://*": ["a.example", "b.example", "a.b.example", "xn--bcher-kva.example", "op.example.com"],
};

const next = randomFrom(1);
const random = (below: number): number => Math.floor(next() * below);
const pick = <T>(of: readonly T[]): T => of[random(of.length)] as T;

/** Changes that an attacker or a well-meaning proxy may make to a string. */
const changes: readonly ((text: string, at: number) => string)[] = [
  (text, at) => text.slice(0, at) + text.charAt(at).toUpperCase() + text.slice(at + 1),
  (text, at) => text.slice(0, at) + text.charAt(at).toLowerCase() + text.slice(at + 1),
  (text, at) =>
    `${text.slice(0, at)}%${(text.codePointAt(at) ?? 0).toString(16).padStart(2, "0")}${text.slice(at + 1)}`,
  (text, at) =>
    text.slice(0, at) +
    pick(["/", "//", "/./", "/../", "\\", "%2f", "%2e%2e/", "%00", "%", "?", "#", ";", ":", "@", ".", "*"]) +
    text.slice(at),
  (text, at) =>
    text.slice(0, at) +
    pick(["\u00FC", "\u212A", "\u0131", "\u200D", "\u3002", "\uFF41", "\u0430", " ", "\t", "\0"]) +
    text.slice(at + random(2)),
  (text, at) => text.slice(0, at) + text.slice(at + 1),
  (text, at) => text.slice(0, at) + pick(segments) + text.slice(at + random(3)),
  (text) => text + pick(["/", ".", ":443", ":80", "?a/jwks", "#", "%20", "/.."]),
  (text) => `http://${pick(["a.op.example", "b.example", "u@a.op.example", "a.op.example:1", ""])}${text}`,
];
const changed = (text: string): string => {
  let next = text;
  for (let count = random(3); count > 0; count -= 1) next = pick(changes)(next, random(next.length + 1));
  return next;
};

describe(`in ${tries} spellings, a request never gets a different issuer's documents`, () => {
  for (const [template, parts] of Object.entries(templates)) {
    test(template, async () => {
      const stores = new Map<string, Register>();
      const owners = new Map<string, string>();
      const issuers = await createIssuers({
        issuer: template,
        store: (issuer) => stores.get(issuer) ?? memoryStore(),
        wrappingKeys: newWrappingKey(),
      });
      const all = parts.map((part) => template.replace("*", part));
      for (const issuer of all) {
        stores.set(issuer, memoryStore());
        const { keys } = await (await issuers.create(issuer)).provider.jwkSet();
        owners.set(keys[0]?.kid ?? "", issuer);
      }
      /** Issuers by the path of their documents, with the host if issuers differ in it. */
      const places = new Map<string, string>();
      const isByHost = new URL(template.replace("*", "x")).host !== new URL(template.replace("*", "y")).host;
      for (const issuer of all) {
        const { host, pathname } = new URL(issuer);
        const path = pathname === "/" ? "" : pathname;
        for (const place of [`${path}/jwks`, `${path}/${discovery}`, `/${discovery}${path}`, `/${metadata}${path}`])
          places.set(`${isByHost ? host : ""} ${place}`, issuer);
      }
      const paths = [...places.keys()].map((place) => place.slice(place.indexOf("/")));
      const hosts = all.map((issuer) => new URL(issuer).host);

      for (let count = 0; count < tries / 4; count += 1) {
        const [target, host] = [changed(pick(paths)), changed(pick(hosts))];
        const way = count % 8 === 0 ? "token" : count % 2 === 0 ? "fetch" : "node";
        const label = `${way} ${JSON.stringify([target, host])}`;
        if (way === "token") {
          const issuer = random(2) === 0 ? pick(all) : changed(pick(all));
          assert.equal(
            await signer(issuers, issuer),
            all.includes(issuer) ? issuer : undefined,
            JSON.stringify(issuer),
          );
          continue;
        }
        const location = way === "node" ? nodeLocation(target, host) : fetchLocation(`https://${host}${target}`);
        if (location === undefined) continue;
        const expected = places.get(`${isByHost ? location.host : ""} ${location.path}`);
        const body =
          way === "node" ? await nodeBody(issuers, target, host) : await fetchBody(issuers, `https://${host}${target}`);
        assert.equal(ownerOf(body, owners), expected, label);
      }
    });
  }
});

interface Location {
  readonly host: string;
  readonly path: string;
}

/** Returns the host and path of a request line and a Host header. @see RFC 9112 section 3.2 */
function nodeLocation(target: string, header: string): Location {
  const [, authority = header, path = ""] = target.startsWith("/")
    ? [target, undefined, target]
    : (/^[A-Za-z][A-Za-z\d+.-]*:\/\/([^/?]*)(.*)$/s.exec(target) ?? [target, undefined, target]);
  const [host = ""] = /^[^:]*(?=(:\d*)?$)/.exec(authority) ?? [];
  // Only ASCII letters.
  const lower = Array.from(host, (letter) => (letter >= "A" && letter <= "Z" ? letter.toLowerCase() : letter)).join("");
  return { host: lower, path: path.split("?")[0] ?? "" };
}

/** Returns the host and path of a URL; `undefined` if the platform refuses it. */
function fetchLocation(url: string): Location | undefined {
  // A client sends no fragment.
  if (!URL.canParse(url) || url.includes("#")) return undefined;
  const { username, password, hostname, pathname } = new URL(url);
  return username + password === "" ? { host: hostname, path: pathname } : undefined;
}

async function nodeBody(issuers: Issuers, url: string, host: string): Promise<string> {
  return new Promise((resolve) => {
    const end = (body: string | Uint8Array = ""): void => resolve(String(body));
    const response = { headersSent: false, setHeader() {}, writeHead() {}, end };
    issuers.node({ url, headers: { host } }, response);
  });
}

async function fetchBody(issuers: Issuers, url: string): Promise<string> {
  return (await issuers.fetch(new Request(url))).text();
}

/** Returns the issuer whose keys or metadata a body has. */
function ownerOf(body: string, owners: ReadonlyMap<string, string>): string | undefined {
  const { keys, issuer } = JSON.parse(body) as { keys?: { kid: string }[]; issuer?: string };
  return keys === undefined ? issuer : owners.get(keys[0]?.kid ?? "");
}

/** Returns the issuer that signs tokens for this issuer; `undefined` if there is no token. */
async function signer(issuers: Issuers, issuer: string): Promise<string | undefined> {
  const token = await issuers.sign(issuer, { sub: "a" }, { lifetimeSeconds: 60 }).catch((error: { code: string }) => {
    assert.equal(error.code, "ERR_STORE_EMPTY");
  });
  if (token === undefined) return undefined;
  const { iss } = decodeJwt(token);
  const set = await (await issuers.get(issuer))?.provider.jwkSet();
  assert.equal(set?.keys[0]?.kid, decodeProtectedHeader(token).kid);
  return iss;
}
