// docs/better-auth.md: from a better-auth that signs with EdDSA to one with jwksd's keys.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import type { Server } from "node:http";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { promisify } from "node:util";
import { betterAuth } from "better-auth";
import { getMigrations } from "better-auth/db/migration";
import { jwt } from "better-auth/plugins";
import { type JSONWebKeySet, createLocalJWKSet, decodeProtectedHeader, jwtVerify } from "jose";
import { textOf } from "../../scripts/samples.ts";
import type { KeyManager } from "../../src/rotation/index.ts";
import { newWrappingKey } from "../support/managed.ts";
import { sample } from "../support/samples.ts";
import { freePort, runCli, temporaryFolder } from "../support/service.ts";

const secret = newWrappingKey();
const wrappingKey = newWrappingKey();

const get = async (url: string): Promise<unknown> => (await fetch(url)).json();

test("the program in docs/better-auth.md keeps the existing keys and their kids, and tokens stay valid", async (t) => {
  const folder = await temporaryFolder(t);
  const origin = `http://localhost:${await freePort()}`;
  const issuer = `${origin}/api/auth`;
  const files = Object.fromEntries(
    ["auth.db", "keys.db", "jwks.json"].map((name) => [name, join(folder, name)] as const),
  ) as Readonly<Record<"auth.db" | "keys.db" | "jwks.json", string>>;

  const before = (alg: "EdDSA" | "ES256") =>
    betterAuth({
      baseURL: origin,
      secret,
      database: new DatabaseSync(files["auth.db"]),
      plugins: [jwt({ jwks: { keyPairConfig: { alg } }, jwt: { issuer } })],
    });
  const tokenOf = async (auth: ReturnType<typeof before>): Promise<string> =>
    (await auth.api.signJWT({ body: { payload: { sub: "alice", aud: "api" } } })).token;
  const program = await sample(t, "examples/docs/better-auth-keys.mts", {
    "./auth.db": files["auth.db"],
    'BETTER_AUTH_SECRET = ""': `BETTER_AUTH_SECRET = "${secret}"`,
  });
  const keys = () => promisify(execFile)(process.execPath, [program]);

  const first = before("EdDSA");
  await (await getMigrations(first.options)).runMigrations();
  assert.equal(decodeProtectedHeader(await tokenOf(first)).alg, "EdDSA");
  assert.match((await keys()).stderr, /^generated an ES256 key/m);
  assert.equal(decodeProtectedHeader(await tokenOf(first)).alg, "EdDSA", "the new key does not sign yet");
  const { keys: published } = await first.api.getJwks();
  assert.deepEqual(new Set(published.map(({ alg }) => alg)), new Set(["EdDSA", "ES256"]));

  const old = await tokenOf(before("ES256"));
  const { stdout, stderr } = await keys();
  assert.doesNotMatch(stderr, /^made/m);
  await writeFile(files["jwks.json"], stdout, { mode: 0o600 });
  const [, command = ""] = /^npx --no-install jwksd (keys import .+)$/m.exec(textOf("docs/better-auth.md")) ?? [];
  const args = command
    .replaceAll("http://localhost:3000", origin)
    .replaceAll(/jwks\.json|keys\.db/g, (name) => files[name as keyof typeof files])
    .split(" ");
  const imported = await runCli(t, args, { JWKSD_WRAPPING_KEYS: wrappingKey });
  assert.equal(imported.code, 0, imported.stderr);

  const path = await sample(t, "examples/docs/better-auth.mts", {
    "http://localhost:3000": origin,
    ".listen(3000)": `.listen(${new URL(origin).port})`,
    "./auth.db": files["auth.db"],
    "./keys.db": files["keys.db"],
    'JWKSD_WRAPPING_KEYS = ""': `JWKSD_WRAPPING_KEYS = "${wrappingKey}"`,
    'BETTER_AUTH_SECRET = ""': `BETTER_AUTH_SECRET = "${secret}"`,
  });
  const { manager, auth, server } = (await import(path)) as {
    manager: KeyManager;
    auth: ReturnType<typeof before>;
    server: Server;
  };
  t.after(async () => {
    server.close();
    server.closeAllConnections();
    await manager.close();
  });
  if (!server.listening) await once(server, "listening");
  const metadata = (await get(`${issuer}/.well-known/openid-configuration`)) as Record<string, unknown>;
  assert.deepEqual(
    [metadata["issuer"], metadata["jwks_uri"], metadata["id_token_signing_alg_values_supported"]],
    [issuer, `${issuer}/jwks`, ["ES256"]],
  );
  const set = createLocalJWKSet((await get(`${issuer}/jwks`)) as JSONWebKeySet);
  const now = await tokenOf(auth);
  for (const token of [old, now]) await jwtVerify(token, set, { issuer, audience: "api" });
  assert.equal(decodeProtectedHeader(now).kid, decodeProtectedHeader(old).kid);
});
