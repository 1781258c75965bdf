import assert from "node:assert/strict";
import { once } from "node:events";
import { type Server, createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { Provider as OidcProvider } from "oidc-provider";
import type { SetIfAbsent } from "../../src/index.ts";
import type { KeyManager } from "../../src/rotation/manager/index.ts";
import { listening } from "../support/listening.ts";
import { newWrappingKey } from "../support/managed.ts";
import { sample } from "../support/samples.ts";
import { temporaryFolder } from "../support/service.ts";

test("the replay store of docs/clients.md lets one replica use a token, until the token has expired", async (t) => {
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
  test(`the client of docs/clients.md ${how}: real openid-client authenticates at real oidc-provider, through a rotation`, async (t) => {
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
    // The host of the client is this machine.
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
    assert.deepEqual(requests, ["/oauth-client.json", "/jwks"], "the announced key was in the set that the server had");
    await manager.rotate({ now: true });
    await assert.rejects(accessToken(), { error: "invalid_client" }, "nobody had announced that key");
  });
}
