import assert from "node:assert/strict";
import type { IncomingMessage } from "node:http";
import { test } from "node:test";
import { TooLong, readBody } from "../../src/service/signing/body.ts";

test("a body that is here already has at most 64 KiB, too", async () => {
  const request = {} as IncomingMessage;
  assert.equal((await readBody(request, new Uint8Array(65_536))).length, 65_536);
  await assert.rejects(readBody(request, new Uint8Array(65_537)), TooLong);
});
