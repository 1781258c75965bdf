import assert from "node:assert/strict";
import { type RequestListener, type ServerResponse, createServer } from "node:http";
import { connect, createServer as createHttp2Server } from "node:http2";
import { after, before, describe, test, type TestContext } from "node:test";
import fc from "fast-check";
import { notModified } from "../../src/publish/if-none-match.ts";
import { comparable } from "../spec/table.ts";
import { type Target, adapters, providerOf } from "../support/adapters.ts";
import { named } from "../support/keys.ts";
import { listening } from "../support/listening.ts";
import { soak } from "../support/soak.ts";
import { type WireReply, type WireRequest, pipeline } from "../support/wire.ts";

const etag = `"${"0123456789abcdef".repeat(4)}"`;

/**
 * The endpoint specification's rule, evaluated one character at a time: slow, and without any part of the tested code.
 *
 * RFC 9110: If-None-Match = "*" / #entity-tag (13.1.2); entity-tag = [ "W/" ] DQUOTE *etagc DQUOTE (8.8.3);
 * #element = [ element ] *( OWS "," OWS [ element ] ) for a recipient (5.6.1.2); white space around a field value is not part of
 * it (5.5). Endpoint specification, section 4: a weak member does not match.
 */
function reference(value: string, etag: string): boolean {
  if (trim(value) === "*") return true;
  const members = splitOutsideQuotes(value).map(trim);
  return members.every((member) => member === "" || isEntityTag(member)) && members.includes(etag);
}

function splitOutsideQuotes(value: string): string[] {
  const members = [""];
  let quoted = false;
  for (const character of value) {
    if (character === '"') quoted = !quoted;
    if (character === "," && !quoted) members.push("");
    else members[members.length - 1] += character;
  }
  return members;
}

function isSpace(character: string | undefined): boolean {
  return character === " " || character === "\t";
}

function trim(text: string): string {
  const characters = text.split("");
  while (isSpace(characters[0])) characters.shift();
  while (isSpace(characters.at(-1))) characters.pop();
  return characters.join("");
}

function isEntityTag(member: string): boolean {
  const [first, ...rest] = (member[0] === "W" && member[1] === "/" ? member.slice(2) : member).split("");
  const last = rest.pop();
  return first === '"' && last === '"' && rest.every(isEtagc);
}

function isEtagc(character: string): boolean {
  const code = character.charCodeAt(0);
  return code === 0x21 || (code >= 0x23 && code <= 0x7e) || (code >= 0x80 && code <= 0xff);
}

/** Field values that HTTP allows, including obs-text. */
const fieldCharacter = fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom(" ", "\t", ",", '"', "*", "W", "w", "/", "\\", "'", ";") },
  {
    weight: 1,
    arbitrary: fc
      .integer({ min: 0x20, max: 0xff })
      .filter((code) => code !== 0x7f)
      .map((code) => String.fromCharCode(code)),
  },
);
const text = fc.string({ unit: fieldCharacter, maxLength: 12 });
const opaque = fc.string({ unit: fieldCharacter.filter((character) => isEtagc(character)), maxLength: 8 });
const separator = fc.oneof(
  { weight: 12, arbitrary: fc.constantFrom(", ", ",", " ,\t", ",,", ", ,") },
  { weight: 1, arbitrary: fc.constantFrom("", " ", ";", "\t", ".") },
);

const members = (own: string) =>
  fc.oneof(
    { weight: 6, arbitrary: opaque.map((inner) => `"${inner}"`) },
    { weight: 4, arbitrary: fc.constant(own) },
    { weight: 3, arbitrary: fc.constant(`W/${own}`) },
    { weight: 2, arbitrary: opaque.map((inner) => `W/"${inner}"`) },
    {
      weight: 1,
      arbitrary: fc.constantFrom(
        "*",
        "",
        `w/${own}`,
        own.slice(1),
        own.slice(0, -1),
        own.slice(1, -1),
        own.toUpperCase(),
      ),
    },
    { weight: 1, arbitrary: opaque.map((inner) => `"${inner},${own.slice(1, -1)},"`) },
    { weight: 1, arbitrary: text },
  );

const lists = (own: string) =>
  fc
    .tuple(
      fc.constantFrom("", " ", ",", "\t, "),
      fc.array(fc.tuple(members(own), separator), { maxLength: 6 }),
      fc.boolean(),
    )
    .map(([start, pairs, separatorLast]) => {
      const list = start + pairs.flat().join("");
      return separatorLast ? list : list.slice(0, list.length - (pairs.at(-1)?.[1].length ?? 0));
    });

const values = (own: string) => fc.oneof({ weight: 8, arbitrary: lists(own) }, { weight: 1, arbitrary: text });

describe("a response is 304 if and only if the endpoint specification requires it", () => {
  test("for any list of validators", () => {
    fc.assert(
      fc.property(values(etag), (value) => assert.equal(notModified(value, etag), reference(value, etag))),
      { numRuns: soak(50_000) },
    );
  });

  test("the generated lists include enough examples of both outcomes", () => {
    const sample = fc.sample(values(etag), { numRuns: 2_000, seed: 1 });
    const matching = sample.filter((value) => reference(value, etag)).length;
    assert.ok(matching > 300 && matching < 1_700, `${matching} of ${sample.length} match`);
    const spoiled = sample.filter((value) => value.includes(etag) && !reference(value, etag)).length;
    assert.ok(spoiled > 300, `${spoiled} contain the ETag and do not match`);
  });

  const setup = { keys: [named("a")] };
  for (const adapter of adapters) {
    describe(adapter.name, () => {
      let target: Target;
      before(async () => {
        target = await adapter.start(setup);
      });
      after(() => target.close());

      test("for any If-None-Match list, whether it is sent as one header field or several", async () => {
        const own = (await target.send({ target: "/jwks" })).headers["etag"] as string;
        await fc.assert(
          fc.asyncProperty(fc.array(values(own), { minLength: 1, maxLength: 3 }), async (lines) => {
            const headers = lines.map((line) => ["If-None-Match", line] as const);
            const { status } = await target.send({ target: "/jwks", headers });
            assert.equal(status, reference(lines.map(trim).join(", "), own) ? 304 : 200);
          }),
          { numRuns: soak(1_000) },
        );
      });
    });
  }
});

// Enough keys for a body that is sent as a buffer.
const provider = await providerOf({ keys: Array.from({ length: 100 }, (_, index) => named(`k${index}`)) });
const ownTag = (await provider.fetch(new Request(provider.jwksUri))).headers.get("etag") ?? "";
const requests: WireRequest[] = [
  { target: "/jwks" },
  { method: "HEAD", target: "/jwks" },
  { target: "/jwks", headers: [["If-None-Match", ownTag]] },
  { method: "POST", target: "/jwks" },
  { target: "/.well-known/openid-configuration" },
  { target: "/x" },
];

async function repliesTo(t: TestContext, listener: RequestListener): Promise<WireReply[]> {
  return (await pipeline(await listening(t, createServer(listener)), requests)).map(comparable);
}

/** Replaces `writeHead` like on-headers 1.0 did for compression, express-session and morgan: it treats a list of headers as a list of pairs. */
function replaceWriteHead(response: ServerResponse): void {
  const writeHead = response.writeHead.bind(response);
  response.writeHead = (status: number, headers: unknown = []): ServerResponse => {
    for (const [name, value] of headers as [string, string][]) response.setHeader(name, value);
    return writeHead(status);
  };
}

describe(
  "provider.node sends the same replies through response objects that do not come from node:http",
  { timeout: 20_000 },
  () => {
    test("even if writeHead does not accept a flat list of headers", async (t) => {
      const replies = await repliesTo(t, (request, response) => {
        replaceWriteHead(response);
        provider.node(request, response);
      });
      assert.deepEqual(replies, await repliesTo(t, (request, response) => provider.node(request, response)));
    });

    test("over HTTP/2", async (t) => {
      const server = createHttp2Server((request, response) => provider.node(request, response));
      const session = connect(`http://127.0.0.1:${await listening(t, server)}`);
      t.after(() => session.destroy());
      const replies: WireReply[] = [];
      for (const { method = "GET", target, headers = [] } of requests) {
        const stream = session.request({ ":method": method, ":path": target, ...Object.fromEntries(headers) });
        const head = new Promise<Record<string, unknown>>((resolve) => void stream.once("response", resolve));
        const body = Buffer.concat(await stream.toArray()).toString("latin1");
        const { ":status": status, ...fields } = await head;
        const texts = Object.fromEntries(Object.entries(fields).map(([name, value]) => [name, String(value)]));
        replies.push(comparable({ status: Number(status), headers: texts, body }));
      }
      assert.deepEqual(replies, await repliesTo(t, (request, response) => provider.node(request, response)));
    });
  },
);
