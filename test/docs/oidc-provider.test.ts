import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { exportJWK, generateKeyPair } from "jose";
import { textOf } from "../../scripts/samples.ts";
import { newWrappingKey } from "../support/managed.ts";
import { runSample, sample } from "../support/samples.ts";
import { runCli } from "../support/service.ts";

test("docs/oidc-provider.md takes over the keys of oidc-provider with their kids, and its program publishes them", async (t) => {
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

test("the fetch of docs/oidc-provider.md guards what oidc-provider gets, and leaves the rest to fetch", async (t) => {
  const path = await sample(t, "examples/docs/oidc-fetch.mts");
  const { configuration } = (await import(path)) as {
    configuration: { fetch: (...args: unknown[]) => Promise<unknown> };
  };
  const url = "https://127.0.0.1:1/";
  await assert.rejects(configuration.fetch(url, { headers: {} }), { code: "ERR_ADDRESS_FORBIDDEN" });
  await assert.rejects(configuration.fetch(url, { method: "POST" }), TypeError);
});
