import assert from "node:assert/strict";
import { fork } from "node:child_process";
import { once } from "node:events";
import { glob, readFile, writeFile } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { dirname, join, resolve } from "node:path";
import { describe, test } from "node:test";
import { gzipSync } from "node:zlib";
import { exportJWK, generateKeyPair, decodeProtectedHeader } from "jose";
import * as oauth from "oauth4webapi";
import { Provider as OidcProvider } from "oidc-provider";
import { pages, textOf, withSamples } from "../../scripts/samples.ts";
import { StoreError } from "../../src/base/errors.ts";
import { createProvider, localSigner, type Provider, type SetIfAbsent } from "../../src/index.ts";
import type { guardedFetch } from "../../src/node/index.ts";
import type { KeyManager, KeysWithSavedSet } from "../../src/rotation/index.ts";
import { type Register, memoryStore } from "../../src/rotation/store/index.ts";
import { sqliteStore } from "../../src/rotation/store/sqlite/sqlite.ts";
import { bundledText } from "../support/bundle.ts";
import { ecKey } from "../support/keys.ts";
import { startLibsql } from "../support/libsql.ts";
import { listening } from "../support/listening.ts";
import { newWrappingKey } from "../support/managed.ts";
import { runSample, sample } from "../support/samples.ts";
import { eventually, freePort, runCli, temporaryFolder } from "../support/service.ts";
import { createSoftHsm, skipWithoutPkcs11 } from "../support/softhsm.ts";
import { kmsStub } from "../support/stubs/aws-kms.ts";

// Newcomers paste the pages' samples. Each is a file that the compiler checks like all others; here they run.

const root = resolve(import.meta.dirname, "../..");
const issuer = "https://login.example.com";
const wrappingKey = Buffer.alloc(32, 7).toString("base64url");

test("pages show the current text of each sample", () => {
  const old = pages.filter((page) => withSamples(textOf(page)) !== textOf(page));
  assert.deepEqual(old, [], "node scripts/samples.ts writes the samples into these pages");
});

test("every program on the pages is a file that a test runs", async () => {
  const tests: string[] = [];
  for await (const file of glob("test/**/*.test.ts", { cwd: root }))
    tests.push(await readFile(join(root, file), "utf8"));
  const shownFiles = new Set<string>();
  // The blocks on the options page are types, generated from the sources.
  for (const page of pages.filter((name) => name !== "docs/options.md")) {
    const [own, ...fences] = textOf(page).split(/^```(?:ts|typescript|js|javascript|python|php|ruby|go|java)$/m);
    for (const before of [own, ...fences].slice(0, fences.length)) {
      const [, file] = /<!-- (\S+) -->\n$/.exec(before ?? "") ?? [];
      assert.ok(file !== undefined, `${page} has a sample with no line <!-- examples/… --> above it`);
    }
    for (const [, file = ""] of textOf(page).matchAll(/^<!-- (examples\/\S+) -->$/gm)) shownFiles.add(file);
  }
  for await (const file of glob("examples/docs/*", { cwd: root }))
    assert.ok(shownFiles.has(file), `no page shows ${file}`);
  const untested = [...shownFiles].filter((file) => !tests.some((text) => text.includes(`"${file}"`)));
  assert.deepEqual(untested, []);
});

describe("code samples in the docs", () => {
  test("a provider with key files serves the key that the page's command generates and a key that is added later", async (t) => {
    const path = await sample(t, "examples/docs/files.mts", {
      ".listen(3001)": ".listen(0, function () { process.send(this.address().port) })",
      "keyset: next.entries });": "keyset: next.entries }); process.send('updated');",
    });
    const [, command = ""] = /^npx --no-install jwksd (keygen .+)$/m.exec(textOf("docs/provider.md")) ?? [];
    const generateKeyFile = (name: string) => {
      const file = join(dirname(path), "keys", name);
      return runCli(t, command.replace("keys/2026-11-01", file).split(" "));
    };
    await generateKeyFile("2026-11-01");
    const { process, next } = runSample(t, path);
    const jwks = `http://localhost:${Number(await next())}/jwks`;
    const keys = async (): Promise<object[]> => ((await (await fetch(jwks)).json()) as { keys: object[] }).keys;
    assert.equal((await keys()).length, 1);
    await generateKeyFile("2026-12-01");
    process.kill("SIGHUP");
    assert.equal(await next(), "updated");
    assert.equal((await keys()).length, 2);
  });

  test("a provider starts from the saved set without its store", async (t) => {
    const path = await sample(t, "examples/docs/saved-set.mts", {
      'import { postgresStore } from "jwksd/store/postgres";': "const { postgresStore } = globalThis as any;",
      "./saved-set.json": join(await temporaryFolder(t), "saved-set.json"),
    });
    const store = memoryStore();
    const environment = { JWKSD_WRAPPING_KEYS: wrappingKey };
    Object.assign(process.env, environment);
    t.after(() => delete process.env["JWKSD_WRAPPING_KEYS"]);
    const started = async (register: Register) => {
      Object.assign(globalThis, { postgresStore: () => register });
      const started = (await import(`${path}?${Math.random()}`)) as { keys: KeysWithSavedSet; provider: Provider };
      t.after(() => started.keys.close());
      return started;
    };
    const first = await started(store);
    const jwkSet = await first.provider.jwkSet();
    assert.equal(jwkSet.keys.length, 1);
    await first.keys.close();
    const outage = new StoreError("ERR_STORE_UNAVAILABLE", "no route to host");
    const fails = () => Promise.reject(outage);
    const { keys, provider } = await started({ ...store, read: fails, write: fails });
    assert.deepEqual([await provider.jwkSet(), keys.manager], [jwkSet, undefined]);
    await assert.rejects(provider.sign({}, { lifetimeSeconds: 60 }), { code: "ERR_SIGNER_STALE" });
  });

  test("the API quick start's guard accepts the token that the provider quick start prints", async (t) => {
    const port = await freePort();
    const providerPath = await sample(t, "examples/docs/provider.mjs", {
      "localhost:3000": `localhost:${port}`,
      ".listen(3000)": `.listen(${port})`,
      "console.log(": "process.send(",
    });
    const running = runSample(t, providerPath, { JWKSD_WRAPPING_KEYS: wrappingKey });
    const token = String(await running.next());
    // A strict RFC 9068 resource server.
    const server = { issuer: `http://localhost:${port}`, jwks_uri: `http://localhost:${port}/jwks` };
    const sent = new Request("http://localhost/orders", { headers: { Authorization: `Bearer ${token}` } });
    const insecure = { [oauth.allowInsecureRequests]: true };
    const accepted = await oauth.validateJwtAccessToken(server, sent, "https://api.example.com", insecure);
    assert.equal(accepted.sub, "alice");
    const guardPath = await sample(t, "examples/docs/guard.mjs", {
      "127.0.0.1:9400": `localhost:${port}`,
      ".listen(3001)": ".listen(0, function () { process.send(this.address().port) })",
    });
    const orders = `http://localhost:${Number(await runSample(t, guardPath).next())}/orders`;
    const authorized = await fetch(orders, { headers: { Authorization: `Bearer ${token}`, Connection: "close" } });
    assert.deepEqual([authorized.status, await authorized.json()], [200, "alice"]);
    assert.equal((await fetch(orders, { headers: { Connection: "close" } })).status, 401);
    // The page says that this command works while the provider runs.
    const [, command = ""] = /npx --no-install jwksd (plan [^`]*)`/.exec(textOf("docs/provider.md")) ?? [];
    const args = command.replace("sqlite:", `sqlite:${dirname(providerPath)}/`).split(" ");
    const { code, stderr } = await runCli(t, args, { JWKSD_WRAPPING_KEYS: wrappingKey });
    assert.deepEqual([code, stderr], [0, ""]);
    const store = sqliteStore(join(dirname(providerPath), "keys.db"));
    const listed = async () => (await store.presence?.list(9))?.count;
    assert.equal(await listed(), 1);
    const ended = once(running.process, "exit");
    running.process.kill("SIGTERM");
    assert.deepEqual([await ended, await listed()], [[0, null], 0]);
  });

  test("the relying party accepts a provider's token", async (t) => {
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

  test("a provider's own userinfo endpoint refuses a revoked key immediately", async (t) => {
    const path = await sample(t, "examples/docs/userinfo.mts", {
      "const manager =": "export const manager =",
      "const provider =": "export const provider =",
      "app.listen(3000)": "export const server = app.listen(0)",
      "./keys.db": join(await temporaryFolder(t), "keys.db"),
    });
    process.env["JWKSD_WRAPPING_KEYS"] = wrappingKey;
    t.after(() => delete process.env["JWKSD_WRAPPING_KEYS"]);
    const { manager, provider, server } = (await import(path)) as {
      manager: KeyManager;
      provider: Provider;
      server: Server;
    };
    t.after(() => manager.close());
    t.after(() => server.close());
    const url = `http://localhost:${(server.address() as AddressInfo).port}/userinfo`;
    const tokenFor = (aud: string, scope: string) =>
      provider.sign({ sub: "alice", aud, client_id: "app", scope }, { typ: "at+jwt", lifetimeSeconds: 60 });
    const own = await tokenFor(provider.issuer, "openid");
    const ask = async (token: string, method = "GET") => {
      const response = await fetch(url, { method, headers: { Authorization: `Bearer ${token}`, Connection: "close" } });
      return [response.status, await response.json()] as const;
    };
    for (const method of ["GET", "POST"]) assert.deepEqual(await ask(own, method), [200, { sub: "alice" }]);
    assert.equal((await ask(await tokenFor(provider.issuer, "orders:read")))[0], 403);
    assert.equal((await ask(await tokenFor("https://api.example.com", "openid")))[0], 401);
    await manager.revoke(decodeProtectedHeader(own).kid ?? "");
    assert.equal((await ask(own))[0], 401);
    assert.equal((await ask(await tokenFor(provider.issuer, "openid")))[0], 200);
  });

  test("the doctor examines the published set", async (t) => {
    const server = createServer((_request, response) => void response.end('{"keys":[]}'));
    const path = await sample(t, "examples/docs/examine.mts", {
      [issuer]: `http://localhost:${await listening(t, server)}`,
      "console.log(severity, code, seen, remedy)": "process.send(code)",
    });
    assert.equal(await runSample(t, path).next(), "JWKS_KEYS_EMPTY");
  });

  test("the checks for clients reject a string that is not a token", async (t) => {
    type Check = (token: string) => Promise<unknown>;
    const checks = (await import(await sample(t, "examples/docs/clients.mts"))) as {
      authenticate: Check;
      readRequest: Check;
    };
    await assert.rejects(checks.authenticate("junk"), { code: "ERR_TOKEN_MALFORMED" });
    await assert.rejects(checks.readRequest("junk"), { code: "ERR_TOKEN_MALFORMED" });
  });

  test("the fetch function with its own lookup refuses addresses that are not public", async (t) => {
    const guarded = (await import(await sample(t, "examples/docs/lookup.mts"))) as { fetch: typeof guardedFetch };
    await assert.rejects(guarded.fetch("https://localhost/jwks", { headers: {}, signal: t.signal }), {
      code: "ERR_ADDRESS_FORBIDDEN",
    });
  });

  test("a key in AWS KMS can sign", async (t) => {
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

  test("a key manager generates its keys in a PKCS#11 token", { skip: skipWithoutPkcs11() }, async (t) => {
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

test("with the replay store in docs/clients.md, a token is accepted by only one replica until it expires", async (t) => {
  const file = join(await temporaryFolder(t), "replay.db");
  const replicas: SetIfAbsent[] = [];
  for (let count = 0; count < 2; count++) {
    const path = await sample(t, "examples/docs/replay.mts", { "replay.db": file });
    replicas.push(((await import(path)) as { replay: SetIfAbsent }).replay);
  }
  t.mock.timers.enable({ apis: ["Date"], now: 1_000 });
  const use = async (key: string, expiresAt: number) =>
    Promise.all(replicas.map(async (replay) => replay(key, expiresAt, "client-1")));
  assert.deepEqual(await use("a", 2_000), [true, false]);
  assert.deepEqual(await use("a", 2_000), [false, false]);
  assert.deepEqual(await use("b", 2_000), [true, false]);
  t.mock.timers.setTime(2_000);
  assert.deepEqual(await use("a", 3_000), [true, false]);
});

for (const isRegistered of [false, true]) {
  const how = isRegistered ? "is registered" : "has a client ID metadata document";
  test(`the client in docs/clients.md, which ${how}, uses openid-client to authenticate to oidc-provider during a rotation`, async (t) => {
    const requests: string[] = [];
    const authorizationServer = createServer();
    const issuer = `http://127.0.0.1:${await listening(t, authorizationServer)}`;

    const path = await sample(t, "examples/docs/client-keys.mts", {
      "./client-keys.db": join(await temporaryFolder(t), "client-keys.db"),
      'JWKSD_WRAPPING_KEYS = ""': `JWKSD_WRAPPING_KEYS = "${newWrappingKey()}"`,
      "https://as.example": issuer,
      "undefined, privateKeyJwt)": "undefined, privateKeyJwt, { execute: [openid.allowInsecureRequests] })",
      ".listen(3002)": ".listen(0)",
    });
    const { manager, server, accessToken } = (await import(path)) as {
      manager: KeyManager;
      server: Server;
      accessToken: () => Promise<string>;
    };
    t.after(async () => {
      server.close();
      await manager.close();
    });
    if (!server.listening) await once(server, "listening");
    // The client's host is this machine.
    const client = (url: URL | string): Promise<Response> => {
      const { pathname } = new URL(url);
      requests.push(pathname);
      return fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}${pathname}`);
    };
    const metadata: unknown = await (await client("https://client.example/oauth-client.json")).json();
    const oidc = new OidcProvider(issuer, {
      fetch: client,
      clients: isRegistered ? [metadata] : [],
      features: {
        clientCredentials: { enabled: true },
        clientIdMetadataDocument: { enabled: !isRegistered, ack: "draft-02" },
      },
    });
    authorizationServer.on("request", oidc.callback());

    const { records } = await manager.rotate();
    assert.match(await accessToken(), /^[\w-]{20,}$/);
    await manager.activate(records.at(-1)?.kid ?? "", { force: true });
    assert.match(await accessToken(), /^[\w-]{20,}$/);
    if (!isRegistered) return;
    assert.deepEqual(requests, ["/oauth-client.json", "/jwks"], "the server's cached set contained the announced key");
    await manager.rotate({ now: true });
    await assert.rejects(accessToken(), { error: "invalid_client" }, "that key was not announced");
  });
}

test("the steps in docs/oidc-provider.md keep oidc-provider's keys and their kids, and the program on that page publishes them", async (t) => {
  const wrappingKey = newWrappingKey();
  const adapter = await sample(t, "examples/docs/oidc-adapter.mts");
  const program = await sample(t, "examples/docs/oidc-provider.mts", {
    "./oidc-adapter.mts": adapter,
    ".listen(3000)": ".listen(0, function () { process.send(this.address().port) })",
  });
  const folder = dirname(program);
  const jwks = { keys: [await jwkOf("now"), await jwkOf("before")] };
  await writeFile(join(folder, "jwks.json"), JSON.stringify(jwks), { mode: 0o600 });

  const page = textOf("docs/oidc-provider.md");
  const commands = Array.from(
    page.matchAll(/^npx --no-install jwksd (keys import .+)$/gm),
    ([, command = ""]) => command,
  );
  assert.equal(commands.length, 2, "one of them with --dry-run");
  for (const command of commands) {
    const args = command.replace("jwks.json", join(folder, "jwks.json")).replace("--data .", `--data ${folder}`);
    const { code, stderr } = await runCli(t, args.split(" "), { JWKSD_WRAPPING_KEYS: wrappingKey });
    assert.equal(code, 0, stderr);
  }

  const { next } = runSample(t, program, { JWKSD_WRAPPING_KEYS: wrappingKey });
  const url = `http://localhost:${Number(await next())}`;
  const reply = await fetch(`${url}/jwks`);
  const { keys } = (await reply.json()) as { keys: { kid: string }[] };
  assert.deepEqual(
    keys.map(({ kid }) => kid),
    ["now", "before"],
  );
  assert.match(reply.headers.get("cache-control") ?? "", /^public, max-age=/);
  const discovery = await fetch(`${url}/.well-known/openid-configuration`);
  assert.equal(((await discovery.json()) as { jwks_uri: string }).jwks_uri, `${url}/jwks`);
});

async function jwkOf(kid: string): Promise<object> {
  const { privateKey } = await generateKeyPair("ES256", { extractable: true });
  return { ...(await exportJWK(privateKey)), kid };
}

test("the fetch function in docs/oidc-provider.md guards oidc-provider's GET requests and passes all other requests to fetch", async (t) => {
  const path = await sample(t, "examples/docs/oidc-fetch.mts");
  const { configuration } = (await import(path)) as {
    configuration: { fetch: (...args: unknown[]) => Promise<unknown> };
  };
  const url = "https://127.0.0.1:1/";
  await assert.rejects(configuration.fetch(url, { headers: {} }), { code: "ERR_ADDRESS_FORBIDDEN" });
  await assert.rejects(configuration.fetch(url, { method: "POST" }), TypeError);
});

// The programs in docs/on-demand.md that run in Node, over libSQL. The Workers are only bundled here; test/runtime runs similar ones in workerd.

interface Answer {
  readonly statusCode: number;
  readonly body: string;
}

test("a cron job generates the first key and performs the steps, while Next.js and Lambda (which is frozen between calls) serve the keys", async (t) => {
  const next = { '"@/lib/provider"': `"${await sample(t, "examples/docs/demand-next-provider.mts")}"` };
  const documents = await sample(t, "examples/docs/demand-next-documents.mts", next);
  const { GET } = (await import(documents)) as { GET: (request: Request) => Promise<Response> };
  const { POST } = (await import(await sample(t, "examples/docs/demand-next-token.mts", next))) as {
    POST: () => Promise<Response>;
  };
  t.after(() => Reflect.deleteProperty(globalThis, "provider"));
  const cron = await sample(t, "examples/docs/demand-cron.mts");
  const env = { DATABASE_URL: await startLibsql(t), JWKSD_WRAPPING_KEYS: newWrappingKey() };
  Object.assign(process.env, env);
  await assert.rejects(import(cron), { code: "ERR_STORE_EMPTY" });
  const logged = t.mock.method(console, "error", () => {});
  assert.equal((await GET(new Request("https://login.example.com/jwks"))).status, 503);
  assert.match(String(logged.mock.calls[0]?.arguments), /^failed,the store has no keys for /);
  process.env["FIRST_START"] = "yes";
  await import(`${cron}?first`);
  delete process.env["FIRST_START"];
  await import(`${cron}?later`);

  const lambda = await sample(t, "examples/docs/demand-lambda.mts");
  const runtime = join(dirname(lambda), "runtime.mts");
  await writeFile(
    runtime,
    `import { handler } from "${lambda}";
process.on("message", async (event) => process.send(await handler(event)));
process.send("ready");`,
  );
  const instance = fork(runtime, { execArgv: [], env: { ...process.env, ...env } });
  t.after(() => instance.kill("SIGKILL"));
  await once(instance, "message");
  async function call(rawPath: string): Promise<Answer> {
    instance.kill("SIGCONT");
    instance.send({ rawPath, headers: {} });
    const [answer] = (await once(instance, "message")) as [Answer];
    instance.kill("SIGSTOP");
    return answer;
  }
  const kids: unknown[] = [];
  for (let calls = 0; calls < 3; calls += 1) {
    const { body } = await call("/jwks");
    kids.push((JSON.parse(body) as { keys: { kid: string }[] }).keys[0]?.kid);
    kids.push(decodeProtectedHeader((await call("/token")).body).kid);
  }
  assert.equal((await call("/nothing")).statusCode, 404);

  let response = new Response();
  await eventually("the route has read the store again", async () => {
    response = await GET(new Request("https://login.example.com/jwks"));
    return response.status === 200;
  });
  const { keys } = (await response.json()) as { keys: { kid: string }[] };
  kids.push(keys[0]?.kid);
  const issued = await POST();
  assert.equal(issued.headers.get("cache-control"), "no-store");
  kids.push(decodeProtectedHeader(((await issued.json()) as { access_token: string }).access_token).kid);
  const discovery = await GET(new Request("https://login.example.com/.well-known/openid-configuration"));
  assert.equal(((await discovery.json()) as { token_endpoint: string }).token_endpoint, `${issuer}/token`);
  assert.equal(new Set(kids).size, 1);
  assert.equal(typeof kids[0], "string");
});

for (const file of ["examples/docs/demand-d1.mts", "examples/docs/demand-durable-object.mts"]) {
  test(`the Worker ${file} is as small as its page says`, async (t) => {
    const path = await sample(t, file);
    const text = await bundledText(path, "--minify", "--external", "cloudflare:workers", "--external", "hono");
    const size = gzipSync(text).length;
    t.diagnostic(`${size} bytes of gzip`);
    assert.ok(size < 58_500, `${size} bytes of gzip`);
  });
}
