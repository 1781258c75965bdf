import assert from "node:assert/strict";
import { test } from "node:test";
import { checkExample, startExample } from "../support/runtime.ts";
import { familiesOf } from "../support/scrape.ts";

const file = "examples/metrics.ts";
checkExample("metrics with prom-client", file);

test(`${file} gives prom-client what provider, manager and key set count`, async (t) => {
  const port = await startExample(t, file);
  const get = async (path: string): Promise<string> => (await fetch(`http://127.0.0.1:${port}${path}`)).text();
  await get("/jwks");
  const text = await get("/metrics");
  const families = familiesOf(text);
  for (const name of ["responses_total", "signature_duration_seconds", "key_info", "remote_set_bytes_total"])
    assert.ok(families.includes(`jwksd_${name}`), name);
  assert.match(text, /^jwksd_responses_total\{document="jwks",code="200"\} 1$/m);
  await get("/jwks");
  assert.match(await get("/metrics"), /^jwksd_responses_total\{document="jwks",code="200"\} 2$/m);
});
