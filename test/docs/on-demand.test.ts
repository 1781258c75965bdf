// The programs of docs/on-demand.md that Node runs, over libSQL in a file. Those of Workers are bundled here; test/runtime has the same in workerd.
import assert from "node:assert/strict";
import { fork } from "node:child_process";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { decodeProtectedHeader } from "jose";
import { bundledText } from "../support/bundle.ts";
import { newWrappingKey } from "../support/managed.ts";
import { sample } from "../support/samples.ts";

interface Answer {
  readonly statusCode: number;
  readonly body: string;
}

test("a cron makes the first key and takes steps, and Lambda and Next.js serve it; Lambda is frozen between its calls", async (t) => {
  const cron = await sample(t, "examples/docs/demand-cron.mts");
  const env = { DATABASE_URL: `file:${join(dirname(cron), "keys.db")}`, JWKSD_WRAPPING_KEYS: newWrappingKey() };
  Object.assign(process.env, env);
  await assert.rejects(import(cron), { code: "ERR_STORE_EMPTY" });
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

  const route = await sample(t, "examples/docs/demand-next.mts");
  const { GET } = (await import(route)) as { GET: (request: Request) => Promise<Response> };
  const response = await GET(new Request("https://login.example.com/jwks"));
  const { keys } = (await response.json()) as { keys: { kid: string }[] };
  kids.push(keys[0]?.kid);
  assert.equal(new Set(kids).size, 1);
  assert.equal(typeof kids[0], "string");
});

for (const file of ["examples/docs/demand-d1.mts", "examples/docs/demand-durable-object.mts"]) {
  test(`${file} is small`, async (t) => {
    const path = await sample(t, file);
    const text = await bundledText(path, "--minify", "--external", "cloudflare:workers", "--external", "hono");
    const size = gzipSync(text).length;
    t.diagnostic(`${size} bytes of gzip`);
    assert.ok(size <= 55_000, `${size} bytes of gzip`);
  });
}
