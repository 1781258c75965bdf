// The real AWS S3 client, against a stub that checks signatures and conditions.

import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type TestContext, describe, test } from "node:test";
import { checkKeysets } from "../../src/publish/keyset-check.ts";
import { loadKeyFiles } from "../../src/service/keys/file-keys.ts";
import { type DocumentSet, type StaticDocument, documentSetOf } from "../../src/service/targets/documents.ts";
import { bucketTarget, parseBucketUrl } from "../../src/service/targets/s3-bucket.ts";
import { endless } from "../support/endless.ts";
import { named } from "../support/keys.ts";
import { readStore } from "../support/managed.ts";
import { runCli, startService, temporaryFolder } from "../support/service.ts";
import { s3Stub, s3Variables } from "../support/stubs/s3.ts";

Object.assign(process.env, s3Variables);
const longCache = "public, max-age=3600, stale-while-revalidate=3600";
const paths = ["jwks", ".well-known/openid-configuration", ".well-known/oauth-authorization-server"] as const;

const documentSet = (text: string, cacheControl = longCache): DocumentSet => ({
  isShort: false,
  kids: [],
  documents: paths.map((path): StaticDocument => ({
    path,
    body: Buffer.from(path === "jwks" ? text : "{}"),
    contentType: path === "jwks" ? "application/jwk-set+json" : "application/json",
    cacheControl,
  })),
});

async function start(t: TestContext) {
  const stub = await s3Stub();
  t.after(async () => {
    await stub.close();
    assert.deepEqual(stub.refused, []);
  });
  const target = () => {
    const target = bucketTarget({ bucket: stub.bucket, prefix: "a/b" }, paths, { endpoint: stub.url });
    t.after(() => target.close());
    return target;
  };
  const text = (): string | undefined => stub.objects.get("a/b/jwks")?.body.toString();
  return { stub, target, text };
}

describe("a bucket target", { timeout: 60_000 }, () => {
  test("writes the JWK Set and then the discovery documents, each with its headers, and does not write unchanged documents again", async (t) => {
    const { stub, target } = await start(t);
    const one = target();
    await one.open();
    assert.deepEqual(await one.put(documentSet("one")), [...paths]);
    assert.deepEqual(
      stub.writes,
      paths.map((path) => `a/b/${path}`),
    );
    assert.partialDeepStrictEqual(stub.objects.get("a/b/jwks"), {
      contentType: "application/jwk-set+json",
      cacheControl: longCache,
    });
    const other = target();
    await other.open();
    for (const each of [one, other]) assert.deepEqual(await each.put(documentSet("one")), []);
    // The mode is part of the stored objects.
    assert.deepEqual(await other.put(documentSet("one", "public, max-age=300, must-revalidate")), [...paths]);
  });

  test("refuses to overwrite an object that has been written since the target last read it, and writes only after reading the object again", async (t) => {
    const { target, text } = await start(t);
    const [slow, quick] = [target(), target()];
    await Promise.all([slow.open(), quick.open()]);
    await quick.put(documentSet("newer"));
    const stale = slow.put(documentSet("older"));
    await assert.rejects(stale, { code: "ERR_TARGET", message: /another process has written there in the meantime/ });
    assert.equal(text(), "newer");
    await slow.put(documentSet("newest"));
    assert.equal(text(), "newest");
  });

  test("stops reading an endless object and does not mistake it for one of the target's own objects", async (t) => {
    const server = await endless(t, { ETag: '"endless"', "Content-Type": "application/json" });
    const endpoint = `http://127.0.0.1:${server.port}`;
    const target = bucketTarget({ bucket: "bucket", prefix: "" }, ["jwks"], { endpoint });
    t.after(() => target.close());
    await target.open();
    assert.equal((await target.content("jwks"))?.length, 0);
    assert.ok(server.sent < 20_000_000, `${server.sent} bytes`);
  });

  test("refuses to overwrite an object that was replaced after the target wrote it", async (t) => {
    const { stub, target, text } = await start(t);
    const one = target();
    await one.open();
    await one.put(documentSet("one"));
    stub.overwrite("a/b/jwks", "by hand");
    await assert.rejects(one.put(documentSet("two")), { code: "ERR_TARGET" });
    assert.equal(text(), "by hand");
  });

  for (const [fault, times] of [
    ["lost", 1],
    ["cut", 1],
    [{ status: 503, body: "<Error><Code>SlowDown</Code></Error>" }, 1],
    [{ status: 500, body: "" }, 1],
  ] as const) {
    test(`writes despite ${times} × ${typeof fault === "string" ? fault : fault.status}`, async (t) => {
      const { stub, target, text } = await start(t);
      const one = target();
      await one.open();
      stub.fail("PutObject", fault, times);
      assert.deepEqual(await one.put(documentSet("one")), [...paths]);
      assert.equal(text(), "one");
    });
  }

  test("after a failure, reads the object again and writes only keys that it has read since the failure", async (t) => {
    const { stub, target, text } = await start(t);
    const one = target();
    await one.open();
    stub.fail("PutObject", "cut", 3);
    stub.fail("GetObject", "cut", 3);
    await assert.rejects(one.put(documentSet("older")), { code: "ERR_TARGET" });
    stub.recover();
    stub.overwrite("a/b/jwks", "newer");
    await assert.rejects(one.put(documentSet("older")), { code: "ERR_TARGET" });
    assert.equal(text(), "newer");
    await one.put(documentSet("newest"));
    assert.equal(text(), "newest");
  });

  test("waits for a slow service", async (t) => {
    const { stub, target, text } = await start(t);
    const one = target();
    await one.open();
    const release = stub.hold("PutObject");
    const written = one.put(documentSet("one"));
    await t.waitFor(() => assert.equal(stub.seen.get("PutObject"), 1));
    assert.equal(text(), undefined);
    release();
    await written;
    assert.equal(text(), "one");
  });

  test("refuses to overwrite an object after reading an old version of that object", async (t) => {
    const { stub, target, text } = await start(t);
    const [one, other] = [target(), target()];
    await one.open();
    await one.put(documentSet("one"));
    await one.put(documentSet("two"));
    stub.stale.signed = 1;
    await other.open();
    // It read "one", not "two".
    await assert.rejects(other.put(documentSet("one and a half")), { code: "ERR_TARGET" });
    assert.equal(text(), "two");
  });

  for (const [what, answer, message] of [
    ["denied access", { status: 403, body: "<Error><Code>AccessDenied</Code></Error>" }, /s3:PutObject/],
    ["a missing bucket", { status: 404, body: "<Error><Code>NoSuchBucket</Code></Error>" }, /create it or correct/],
    ["missing conditional writes", { status: 501, body: "<Error><Code>NotImplemented</Code></Error>" }, /If-Match/],
  ] as const) {
    test(`suggests a remedy for ${what}`, async (t) => {
      const { stub, target } = await start(t);
      const one = target();
      await one.open();
      stub.fail("PutObject", { ...answer, headers: { "Content-Type": "application/xml" } }, 3);
      await assert.rejects(one.put(documentSet("one")), (error: Error & { readonly code: string }) => {
        assert.match(error.message, message);
        // A cause would contain the request.
        return error.code === "ERR_TARGET" && error.cause === undefined;
      });
    });
  }

  test("contains exactly the bytes that jwksd serve sends", async (t) => {
    const folder = await temporaryFolder(t);
    const file = join(folder, "keys.json");
    await writeFile(file, JSON.stringify({ keys: [named("one")] }));
    const service = await startService(t, ["--keys", file, "--issuer", "https://a.example"]);
    const served = await fetch(`http://127.0.0.1:${service.port}/jwks`);
    const { stub, target } = await start(t);
    const one = target();
    const site = { issuer: "https://a.example", cors: true, discovery: true };
    await one.open();
    const keysets = await loadKeyFiles({ keys: file, encryptionKeys: undefined }, { warn() {} });
    await one.put(await documentSetOf((await checkKeysets(keysets)).set, site, false));
    const object = stub.objects.get("a/b/jwks");
    assert.deepEqual(object?.body, Buffer.from(await served.arrayBuffer()));
    assert.equal(object?.cacheControl, served.headers.get("cache-control"));
    assert.equal(object?.contentType, served.headers.get("content-type"));
  });
});

test("parseBucketUrl accepts bucket URLs and rejects others", () => {
  for (const [url, prefix] of [
    ["s3://a-bucket", ""],
    ["s3://a-bucket/", ""],
    ["s3://a-bucket/x", "x"],
    ["s3://a-bucket/x/y.z/", "x/y.z"],
  ] as const) {
    assert.deepEqual(parseBucketUrl(url), { bucket: "a-bucket", prefix });
  }
  for (const url of [
    "s3://",
    "s3://A_B",
    "s3:a-bucket",
    "s3://a-bucket//x",
    "s3://a-bucket/../x",
    "s3://a-bucket/x?y",
    "s3://u:p@b",
  ]) {
    assert.throws(() => parseBucketUrl(url), { code: "ERR_OPTION_INVALID" }, url);
  }
});

/** Starts a stub and returns commands for it. The SDK reads its settings from the process's environment. */
async function startCli(t: TestContext) {
  const { stub } = await start(t);
  const data = await temporaryFolder(t);
  const environment = {
    ...s3Variables,
    AWS_ENDPOINT_URL_S3: stub.url,
    AWS_CONFIG_FILE: join(data, "none"),
    AWS_SHARED_CREDENTIALS_FILE: join(data, "none"),
  };
  const before = { ...process.env };
  Object.assign(process.env, environment);
  t.after(() => {
    for (const name of Object.keys(environment)) delete process.env[name];
    Object.assign(process.env, before);
  });
  const issuer = `${stub.url}/${stub.bucket}/cluster`;
  const publish = (...args: readonly string[]) =>
    runCli(
      t,
      ["publish", `s3://${stub.bucket}/cluster`, "--issuer", issuer, "--data", data, "--log-level", "silent", ...args],
      environment,
    );
  const cli = (...args: readonly string[]) => runCli(t, [...args, "--data", data], environment);
  const storedTarget = async () => (await readStore(join(data, "keys.db"))).targets[0];
  return { stub, publish, cli, storedTarget };
}

describe("jwksd publish s3://BUCKET/PREFIX", { timeout: 60_000 }, () => {
  test("records only what it has read back, not what stale responses show", async (t) => {
    const { stub, publish, cli, storedTarget } = await startCli(t);
    assert.equal((await publish()).code, 0);
    assert.equal((await storedTarget())?.name, `s3://example-issuer/cluster at 127.0.0.1:${stub.port}`);
    await cli("rotate", "--wait", "0");
    const before = await storedTarget();
    stub.stale.read = 99;
    const { code, stderr } = await publish("--wait", "0");
    assert.equal(code, 3, stderr);
    assert.match(stderr, /does not serve the written document yet/);
    assert.equal((await storedTarget())?.revision, before?.revision);
    stub.stale.read = 0;
    assert.equal((await publish()).code, 0);
    assert.ok(((await storedTarget())?.revision ?? 0) > (before?.revision ?? 0));
  });

  test("reports a failed write, and the rotation waits", async (t) => {
    const { stub, publish, cli, storedTarget } = await startCli(t);
    await publish();
    await cli("rotate", "--wait", "0");
    const before = await storedTarget();
    stub.fail("PutObject", { status: 403, body: "<Error><Code>AccessDenied</Code></Error>" }, 9);
    const { code, stderr } = await publish("--wait", "0");
    assert.deepEqual([code, /access is denied.*\[ERR_TARGET\]/.test(stderr)], [1, true], stderr);
    assert.equal((await storedTarget())?.revision, before?.revision);
  });
});
