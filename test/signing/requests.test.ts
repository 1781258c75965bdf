import assert from "node:assert/strict";
import { createPublicKey } from "node:crypto";
import { once } from "node:events";
import { readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type TestContext, after, before, describe, test } from "node:test";
import { decodeJwt, jwtVerify } from "jose";
import { createRemoteKeySet } from "../../src/verify/relying-party/index.ts";
import { rsaKey } from "../support/keys.ts";
import { type RunningService, startService, temporaryFolder } from "../support/service.ts";
import { askSocket, openSocket, requestText, signText } from "../support/sign-socket.ts";
import type { WireReply } from "../support/wire.ts";

const hour = { lifetimeSeconds: 3600 };
const minute = { lifetimeSeconds: 60 };

/** Returns a request with this many nested objects and arrays, including the outermost. */
const nested = (depth: number): string =>
  signText(`{"claims":{"x":${"[".repeat(depth - 2)}${"]".repeat(depth - 2)}},"lifetimeSeconds":60}`);

describe("a sign socket", () => {
  const ends: (() => Promise<void>)[] = [];
  const scope = { after: (fn: () => Promise<void>) => void ends.unshift(fn) };
  let service: RunningService;
  let issuer: string;
  let plain: string;
  let narrow: string;

  before(async () => {
    const folder = await temporaryFolder(scope);
    [plain, narrow] = [join(folder, "plain.sock"), join(folder, "narrow.sock")];
    const file = join(folder, "sockets.json");
    const policy = { typ: ["at+jwt"], audiences: ["api", "logs"], maxLifetimeSeconds: 60 };
    await writeFile(file, JSON.stringify({ [narrow]: policy }));
    const args = ["--data", join(folder, "data"), "--sign-socket", plain, "--sign-config", file];
    service = await startService(scope, args);
    issuer = new URL(service.jwksUri).origin;
  });
  after(async () => {
    for (const end of ends) await end();
  });

  async function verified(reply: WireReply, audience: string) {
    assert.deepEqual([reply.status, reply.headers["content-type"]], [200, "application/jwt"]);
    const keys = createRemoteKeySet({ issuer, allowInsecure: true });
    return jwtVerify(reply.body, keys, { issuer, audience });
  }

  test("signs claims just as provider.sign does, and the published key verifies the token", async () => {
    const claims = { sub: "älice", aud: "api", more: { deep: ["x", null, 1.5, -9007199254740991] }, ["__proto__"]: 1 };
    const reply = await askSocket(plain, signText({ claims, ...hour, typ: "at+jwt", header: { cty: "x" } }));
    const { payload, protectedHeader } = await verified(reply, "api");
    const { iss, iat = 0, exp, jti = "", ...rest } = payload;
    assert.deepEqual(rest, claims);
    assert.match(jti, /^[\da-f-]{36}$/, "RFC 9068 section 2.2");
    assert.deepEqual([iss, exp], [issuer, iat + 3600]);
    const { kid, ...header } = protectedHeader;
    assert.deepEqual(header, { cty: "x", alg: "ES256", typ: "at+jwt" });
    assert.equal(reply.headers["cache-control"], "no-store");
    assert.ok((await askSocket(plain, requestText("GET", "/keys"))).body.includes(`"kid":"${kid}","state":"active"`));
  });

  test("signs claims up to the depth that JSON parsers accept", async () => {
    assert.equal((await askSocket(plain, nested(64))).status, 200);
    const { body } = await askSocket(plain, nested(65));
    assert.match(body, /more than 64 levels of nested objects and arrays/);
  });

  test("keeps serving after more callers than its limit have disconnected mid-request", async () => {
    const half = signText({ claims: {}, ...hour }).slice(0, -5);
    const clients = Array.from({ length: 20 }, async () => {
      for (let count = 0; count < 55; count += 1) {
        const { socket } = await openSocket(plain);
        await new Promise((resolve) => socket.write(half, resolve));
        socket.destroy();
      }
    });
    await Promise.all(clients);
    assert.equal((await askSocket(plain, signText({ claims: {}, ...hour }))).status, 200);
  });

  test("replies to pipelined requests in order", async () => {
    const client = await openSocket(plain);
    const subs = Array.from({ length: 60 }, (_, index) => `user ${index}`);
    client.socket.write(subs.map((sub) => signText({ claims: { sub }, ...hour })).join(""));
    for (const sub of subs) assert.equal(decodeJwt((await client.reply()).body).sub, sub);
    client.close();
  });

  describe("refuses", () => {
    const invalid = [400, "ERR_CLAIMS_INVALID"] as const;
    const rows: Readonly<
      Record<string, readonly [text: string, status: number, code?: string | undefined, detail?: string]>
    > = {
      "a body that is not JSON": [signText("{"), ...invalid],
      "a body that is not UTF-8": [
        'POST /sign HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n"\xff"',
        ...invalid,
        "the body is not UTF-8",
      ],
      "an empty body": [signText(""), ...invalid, "the body is empty; send a JSON object"],
      "a form": [signText("sub=alice&aud=api"), ...invalid, "the body is not JSON"],
      "a number that does not exist in JSON": [signText('{"claims":{"x":NaN}}'), ...invalid, "the body is not JSON"],
      "a typ in the header": [
        signText({ claims: {}, ...hour, header: { typ: "at+jwt" } }),
        ...invalid,
        'header "typ" must not be set by the caller; use the "typ" option',
      ],
      "an unknown path": [
        requestText("POST", "/token", {}),
        404,
        undefined,
        "There is nothing at this path. To get a token, use POST /sign; to get the keys, use GET /keys.",
      ],
      "an array": [signText([]), ...invalid],
      "no claims": [signText({ ...hour }), ...invalid],
      "claims that are not an object": [signText({ claims: "a", ...hour }), 400, "ERR_OPTION_INVALID"],
      "an unknown member": [signText({ claims: {}, lifetime: 1 }), 400, "ERR_OPTION_UNKNOWN"],
      "no lifetime": [signText({ claims: {} }), ...invalid],
      "a lifetime as a string": [signText({ claims: {}, lifetimeSeconds: "60" }), ...invalid],
      "a lifetime beyond the policy": [signText({ claims: {}, lifetimeSeconds: 3601 }), ...invalid],
      "a lifetime that is an object": [signText({ claims: {}, lifetimeSeconds: { toString: 1 } }), ...invalid],
      "more depth than JSON parsers accept": [nested(65), ...invalid],
      "deep nesting": [nested(9_000), ...invalid],
      "a time that the socket sets": [signText({ claims: { exp: 4e9 }, ...hour }), ...invalid],
      "the caller's own kid": [signText({ claims: {}, ...hour, header: { kid: "x" } }), ...invalid],
      "a number that would be rounded": [
        signText('{"claims":{"id":9007199254740993},"lifetimeSeconds":60}'),
        ...invalid,
      ],
      "a duplicate claim": [signText('{"claims":{"aud":"api","aud":"admin"},"lifetimeSeconds":60}'), ...invalid],
      "a duplicate lifetime": [signText('{"claims":{},"lifetimeSeconds":60,"lifetimeSeconds":3600}'), ...invalid],
      "claims too large for a token": [signText({ claims: { x: "x".repeat(20_000) }, ...hour }), ...invalid],
      "a long body": [signText({ claims: { x: "x".repeat(70_000) }, ...hour }), 413, "ERR_CLAIMS_INVALID"],
      "a digest to sign": [requestText("POST", "/sign-digest", {}), 404],
      "a GET request for a token": [requestText("GET", "/sign"), 405],
      "new keys": [requestText("PUT", "/keys", {}), 405],
    };
    for (const [name, [text, status, code, detail]] of Object.entries(rows)) {
      test(name, async () => {
        const reply = await askSocket(plain, text);
        const problem = JSON.parse(reply.body) as Record<string, unknown>;
        assert.deepEqual([reply.status, problem["status"], problem["code"]], [status, status, code]);
        assert.equal(reply.headers["content-type"], "application/problem+json");
        assert.equal(reply.headers["allow"] !== undefined, status === 405);
        assert.equal(reply.headers["retry-after"], undefined);
        if (detail !== undefined) assert.equal(problem["detail"], detail);
      });
    }
  });

  describe("with a policy", () => {
    const allowed = { claims: { aud: ["api", "logs"] }, ...minute, typ: "at+jwt" };

    test("signs allowed claims", async () => {
      await verified(await askSocket(narrow, signText(allowed)), "logs");
    });

    for (const [name, change] of Object.entries({
      "another typ": { typ: "JWT" },
      "the default typ": { typ: undefined },
      "a longer lifetime": { lifetimeSeconds: 61 },
      "another audience": { claims: { aud: "else" } },
      "an additional audience": { claims: { aud: ["api", "else"] } },
      "no audience": { claims: {} },
      "an empty list of audiences": { claims: { aud: [] } },
    })) {
      test(`refuses ${name}`, async () => {
        const reply = await askSocket(narrow, signText({ ...allowed, ...change }));
        assert.deepEqual(
          [reply.status, (JSON.parse(reply.body) as { code: string }).code],
          [403, "ERR_CLAIMS_FORBIDDEN"],
        );
      });
    }
  });

  test("returns each key's kid, state and public key, and reports that it is ready", async () => {
    const { body } = await askSocket(plain, requestText("GET", "/keys"));
    const { keys } = JSON.parse(body) as { keys: { jwk: object; kid: string; state: string }[] };
    const published = (await (await fetch(service.jwksUri)).json()) as { keys: object[] };
    assert.deepEqual(
      keys.map(({ jwk }) => jwk),
      published.keys,
    );
    assert.ok(!body.includes('"d"'));
    for (const path of ["/livez", "/readyz"]) {
      assert.equal((await askSocket(plain, requestText("GET", path))).status, 200);
      const client = await openSocket(plain);
      client.socket.write(requestText("HEAD", path));
      const [head] = (await once(client.socket, "data")) as [Buffer];
      assert.match(head.toString(), /^HTTP\/1\.1 200 [^]*\r\n\r\n$/);
      client.close();
    }
  });
});

test("the log counts signed and refused tokens but does not contain their claims", async (t) => {
  const folder = await temporaryFolder(t);
  const path = join(folder, "s.sock");
  const service = await startService(t, ["--data", join(folder, "data"), "--sign-socket", path]);
  const claims = { sub: "secret-subject" };
  for (const body of [{ claims, ...hour }, { claims, ...hour }, { claims }]) await askSocket(path, signText(body));
  // A caller that disconnects in mid-request.
  const { socket } = await openSocket(path);
  await new Promise((resolve) => socket.write(signText({ claims }).slice(0, -5), resolve));
  socket.destroy();
  await service.stop();
  const line = await service.logged(({ msg }) => msg === "tokens signed");
  assert.deepEqual(
    [line["socket"], line["signed"], line["refused"]],
    [path, 2, { ERR_CLAIMS_INVALID: 1, ERR_SIGNER_ABORTED: 1 }],
  );
  assert.ok(!JSON.stringify(service.log).includes("secret-subject"));
});

/** Returns the message of a service that refuses to start with these sockets, and the files that it leaves in its folder. */
async function startRefusal(t: TestContext, members: unknown, ...more: string[]) {
  const folder = await temporaryFolder(t);
  const file = join(folder, "sockets.json");
  await writeFile(file, JSON.stringify(members));
  const args = ["--data", join(folder, "data"), "--sign-config", file, ...more];
  const { message } = await startService(t, args).then(
    () => assert.fail("the service started"),
    (error: Error) => error,
  );
  return { message, files: await readdir(folder) };
}

/** Like `startRefusal`, but checks that no key is left behind, because it would become the active key. */
async function cleanStartRefusal(t: TestContext, members: unknown, ...more: string[]): Promise<string> {
  const { message, files } = await startRefusal(t, members, ...more);
  assert.deepEqual(files, ["sockets.json"]);
  return message;
}

describe("the service refuses to start with", () => {
  const rows: Readonly<Record<string, readonly [members: unknown, message: RegExp]>> = {
    "an unknown member": [
      { "s.sock": { audience: ["a"] } },
      /there is no "audience" member of .*; did you mean "audiences"\?/,
    ],
    "a policy of the wrong type": [
      { "s.sock": { audiences: "a" } },
      /"audiences" member of .* must be an array of non-empty strings/,
    ],
    "a mode that admits every user": [
      { "s.sock": { mode: "0666" } },
      /"mode" member of .* must be the string "0600" or "0660"(?: \[|$)/,
    ],
    "a path that is too long": [{ [`/${"s".repeat(107)}`]: {} }, /a path of at most 107 bytes/],
    "an abstract socket, which has no mode": [
      { "@jwksd": {} },
      /a path .*, not an abstract socket \(@name\), which is open to/,
    ],
    "a socket that is not an object": [{ "s.sock": true }, /must be an object/],
    "an unknown protocol": [
      { "s.sock": { protocol: "grpc" } },
      /"protocol" member of .* must be http or kubernetes(?: \[|$)/,
    ],
    "a typ for Kubernetes": [
      { "s.sock": { protocol: "kubernetes", typ: ["at+jwt"] } },
      /typ is always JWT; remove typ/,
    ],
    "former keys without Kubernetes": [
      { "s.sock": { formerKeys: ["sa.pub"] } },
      /is only for the "kubernetes" protocol/,
    ],
    "a former key in the wrong format": [
      { "s.sock": { protocol: "kubernetes", formerKeys: [import.meta.filename] } },
      /former keys must be public keys in PEM format/,
    ],
    "a missing former key": [
      { "s.sock": { protocol: "kubernetes", formerKeys: ["/no/sa.pub"] } },
      /cannot read \/no\/sa\.pub \(ENOENT\)/,
    ],
    "an unknown group": [{ "s.sock": { group: "no-such-group" } }, /has no group "no-such-group"/],
    "a missing folder": [{ "/no/such/folder/s.sock": {} }, /its folder does not exist/],
  };
  for (const [name, [members, message]] of Object.entries(rows)) {
    test(name, async (t) => assert.match(await cleanStartRefusal(t, members), message));
  }

  test("a former-key file that also contains another kind of PEM block, because that block may also be a key", async (t) => {
    const file = join(await temporaryFolder(t), "sa.pem");
    const publicKey = createPublicKey({ key: rsaKey(), format: "jwk" });
    const blocks = (["spki", "pkcs1"] as const).map((type) => publicKey.export({ type, format: "pem" }));
    await writeFile(file, blocks.join(""));
    const members = { "s.sock": { protocol: "kubernetes", formerKeys: [file] } };
    assert.match(await cleanStartRefusal(t, members), /former keys must be public keys in PEM format/);
  });

  // The policy is in the store, so the store is opened first.
  const lifetimes: Readonly<Record<string, readonly [members: unknown, message: RegExp]>> = {
    "longer than a key is published": [
      { "s.sock": { maxLifetimeSeconds: 3601 } },
      /(maxTokenLifetimeSeconds|--max-token-lifetime-seconds) is 3600/,
    ],
    "too short for Kubernetes": [
      { "s.sock": { protocol: "kubernetes", maxLifetimeSeconds: 599 } },
      /of 599, but Kubernetes requires at least 600/,
    ],
  };
  for (const [name, [members, message]] of Object.entries(lifetimes)) {
    test(`a lifetime ${name}`, async (t) => assert.match((await startRefusal(t, members)).message, message));
  }

  test("a sign socket for keys from key files, because the service only publishes those keys", async (t) => {
    assert.match(await cleanStartRefusal(t, {}, "--keys", "k"), /--keys and --sign-config cannot be combined/);
  });
});
