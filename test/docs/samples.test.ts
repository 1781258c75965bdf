import assert from "node:assert/strict";
import { once } from "node:events";
import { glob, readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { dirname, join, resolve } from "node:path";
import { describe, test } from "node:test";
import type { guardedFetch } from "../../src/library/node/index.ts";
import type { KeyManager } from "../../src/rotation/manager/index.ts";
import { createProvider, localSigner } from "../../src/index.ts";
import { sqliteStore } from "../../src/rotation/store/sqlite/sqlite.ts";
import { pages, textOf, withSamples } from "../../scripts/samples.ts";
import { ecKey } from "../support/keys.ts";
import { listening } from "../support/listening.ts";
import { runSample, sample } from "../support/samples.ts";
import { freePort, runCli } from "../support/service.ts";
import { createSoftHsm, skipWithoutPkcs11 } from "../support/softhsm.ts";
import { kmsStub } from "../support/stubs/aws-kms.ts";

// What the documents show is what a newcomer pastes. Each sample is a file that the compiler checks with all others; here they run.

const root = resolve(import.meta.dirname, "../..");
const issuer = "https://login.example.com";
const wrappingKey = Buffer.alloc(32, 7).toString("base64url");

test("pages show each sample as its file is", () => {
  const old = pages.filter((page) => withSamples(textOf(page)) !== textOf(page));
  assert.deepEqual(old, [], "node scripts/samples.ts writes the samples into these pages");
});

test("all programs of the pages are files that a test runs", async () => {
  const tests: string[] = [];
  for await (const file of glob("test/**/*.test.ts", { cwd: root }))
    tests.push(await readFile(join(root, file), "utf8"));
  const shown = new Set<string>();
  // The blocks of the page of options are types, made from the sources.
  for (const page of pages.filter((name) => name !== "docs/options.md")) {
    const [own, ...fences] = textOf(page).split(/^```(?:ts|typescript|js|javascript|python|php|ruby|go|java)$/m);
    for (const before of [own, ...fences].slice(0, fences.length)) {
      const [, file] = /<!-- (\S+) -->\n$/.exec(before ?? "") ?? [];
      assert.ok(file !== undefined, `${page} has a sample with no line <!-- examples/… --> above it`);
      shown.add(file);
    }
  }
  for await (const file of glob("examples/docs/*", { cwd: root })) assert.ok(shown.has(file), `no page shows ${file}`);
  const untested = [...shown].filter((file) => !tests.some((text) => text.includes(`"${file}"`)));
  assert.deepEqual(untested, []);
});

describe("the samples of the documents", () => {
  test("a provider of keys in files serves those that the command before made, and those that came later", async (t) => {
    const path = await sample(t, "examples/docs/files.mts", {
      ".listen(3001)": ".listen(0, function () { process.send(this.address().port) })",
      "keyset: next.entries });": "keyset: next.entries }); process.send('updated');",
    });
    const [, command = ""] = /^npx --no-install jwksd (keygen .+)$/m.exec(textOf("docs/provider.md")) ?? [];
    const makeKey = (name: string) => {
      const file = join(dirname(path), "keys", name);
      return runCli(t, command.replace("keys/2026-11-01", file).split(" "));
    };
    await makeKey("2026-11-01");
    const { process, next } = runSample(t, path);
    const jwks = `http://localhost:${Number(await next())}/jwks`;
    const keys = async (): Promise<object[]> => ((await (await fetch(jwks)).json()) as { keys: object[] }).keys;
    assert.equal((await keys()).length, 1);
    await makeKey("2026-12-01");
    process.kill("SIGHUP");
    assert.equal(await next(), "updated");
    assert.equal((await keys()).length, 2);
  });

  test("the guard of the README takes the token that its provider prints", async (t) => {
    const port = await freePort();
    const providerPath = await sample(t, "examples/docs/provider.mjs", {
      "localhost:3000": `localhost:${port}`,
      ".listen(3000)": `.listen(${port})`,
      "console.log(": "process.send(",
    });
    const running = runSample(t, providerPath, { JWKSD_WRAPPING_KEYS: wrappingKey });
    const token = String(await running.next());
    const guardPath = await sample(t, "examples/docs/guard.mjs", {
      "localhost:3000": `localhost:${port}`,
      ".listen(3001)": ".listen(0, function () { process.send(this.address().port) })",
    });
    const orders = `http://localhost:${Number(await runSample(t, guardPath).next())}/orders`;
    const good = await fetch(orders, { headers: { Authorization: `Bearer ${token}`, Connection: "close" } });
    assert.deepEqual([good.status, await good.json()], [200, "alice"]);
    assert.equal((await fetch(orders, { headers: { Connection: "close" } })).status, 401);
    // What the page says works beside it.
    const [, command = ""] = /npx --no-install jwksd (plan [^`]*)`/.exec(textOf("docs/provider.md")) ?? [];
    const args = command.replace("sqlite:", `sqlite:${dirname(providerPath)}/`).split(" ");
    const { code, stderr } = await runCli(t, args, { JWKSD_WRAPPING_KEYS: wrappingKey });
    assert.deepEqual([code, stderr], [0, ""]);
    const store = await sqliteStore(join(dirname(providerPath), "keys.db"));
    const listed = async () => (await store.presence?.all())?.size;
    assert.equal(await listed(), 1);
    const ended = once(running.process, "exit");
    running.process.kill("SIGTERM");
    assert.deepEqual([await ended, await listed()], [[0, null], 0]);
  });

  test("the relying party takes the token of a provider", async (t) => {
    const key = { kid: "k", signer: await localSigner(ecKey("provider")) };
    const server = createServer((request, response) => provider.node(request, response));
    const local = `http://localhost:${await listening(t, server)}`;
    const provider = await createProvider({ issuer: local, keyset: [key] });
    const path = await sample(t, "examples/docs/verify.mts", { [issuer]: local });
    const { claimsOf } = (await import(path)) as { claimsOf: (token: string) => Promise<Record<string, unknown>> };
    const claims = { sub: "alice", aud: "my-api" };
    const token = await provider.sign(claims, { typ: "at+jwt", lifetimeSeconds: 60 });
    assert.equal((await claimsOf(token))["sub"], "alice");
    await assert.rejects(claimsOf(`${token.slice(0, -8)}AAAAAAAA`), { code: "ERR_JWS_SIGNATURE_VERIFICATION_FAILED" });
    await assert.rejects(claimsOf(await provider.sign(claims, { lifetimeSeconds: 60 })), { claim: "typ" });
  });

  test("the doctor examines what is published", async (t) => {
    const server = createServer((_request, response) => void response.end('{"keys":[]}'));
    const path = await sample(t, "examples/docs/examine.mts", {
      [issuer]: `http://localhost:${await listening(t, server)}`,
      "console.log(severity, code, seen, remedy)": "process.send(code)",
    });
    assert.equal(await runSample(t, path).next(), "JWKS_KEYS_EMPTY");
  });

  test("what clients sign is refused when it is no token", async (t) => {
    type Check = (token: string) => Promise<unknown>;
    const checks = (await import(await sample(t, "examples/docs/clients.mts"))) as {
      authenticate: Check;
      readRequest: Check;
    };
    await assert.rejects(checks.authenticate("junk"), { code: "ERR_TOKEN_MALFORMED" });
    await assert.rejects(checks.readRequest("junk"), { code: "ERR_TOKEN_MALFORMED" });
  });

  test("an own lookup finds hosts, and the guard refuses what is not public", async (t) => {
    const guarded = (await import(await sample(t, "examples/docs/lookup.mts"))) as { fetch: typeof guardedFetch };
    await assert.rejects(guarded.fetch("https://localhost/jwks", { headers: {}, signal: t.signal }), {
      code: "ERR_ADDRESS_FORBIDDEN",
    });
  });

  test("a key in AWS KMS signs", async (t) => {
    const [accessKeyId, secretAccessKey] = ["AKIDEXAMPLE", "a-secret"];
    const stub = await kmsStub({ accessKeyId, secretAccessKey, region: "eu-central-1", service: "kms" });
    t.after(() => stub.close());
    const uri = stub.add();
    process.env["AWS_ACCESS_KEY_ID"] = accessKeyId;
    process.env["AWS_SECRET_ACCESS_KEY"] = secretAccessKey;
    process.env["AWS_ENDPOINT_URL_KMS"] = stub.url;
    const path = await sample(t, "examples/docs/aws-kms.mts", {
      "arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab": uri.slice("aws-kms:".length),
    });
    const { provider } = (await import(path)) as { provider: Awaited<ReturnType<typeof createProvider>> };
    const claims = { sub: "alice", aud: "my-api" };
    const token = await provider.sign(claims, { typ: "at+jwt", lifetimeSeconds: 60 });
    assert.equal((await provider.verify(token, { audience: "my-api" })).claims["iss"], issuer);
  });

  test("a key manager makes its keys in a PKCS#11 token", { skip: skipWithoutPkcs11() }, async (t) => {
    const token = await createSoftHsm(t);
    process.env["JWKSD_WRAPPING_KEYS"] = wrappingKey;
    const path = await sample(t, "examples/docs/pkcs11.mts", {
      "/usr/lib/softhsm/libsofthsm2.so": token.modulePath,
      "/run/secrets/pin": token.pinFile,
      "pkcs11:token=jwksd": token.uri,
      "/var/lib/jwksd/keys.db": join(token.folder, "keys.db"),
    });
    const { manager } = (await import(path)) as { manager: KeyManager };
    t.after(() => manager.close());
    assert.match(token.pkcs11Tool("--list-objects", "--type", "privkey"), /Private Key Object; EC/);
  });
});
