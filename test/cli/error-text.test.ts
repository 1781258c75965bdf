import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { errorText } from "../../src/cli/error-text.ts";
import { ConfigError, JwksdError } from "../../src/base/errors.ts";
import { createKeyManager } from "../../src/rotation/manager/index.ts";
import { memoryStore } from "../../src/rotation/store/memory.ts";
import { newWrappingKey } from "../../src/rotation/custody/wrapping.ts";

describe("an error of the library names options, and the command line says it with flags", () => {
  const wrappingKeys = [newWrappingKey()];
  const store = memoryStore();
  const options = { issuer: "https://a.example", store, wrappingKeys };
  const rows: readonly {
    readonly name: string;
    readonly attempt: () => Promise<unknown>;
    readonly library: RegExp;
    readonly text: RegExp;
  }[] = [
    {
      name: "a policy",
      attempt: () => createKeyManager({ ...options, policy: { rotateEveryDays: 1, announceForSeconds: 3600 } }),
      library: /^announceForSeconds is 3600, .*cacheSlackSeconds \(7200\)/,
      text: /^--announce-for-seconds is 3600, .*--cache-slack-seconds \(7200\)/,
    },
    {
      name: "a wrapping key that is not given",
      attempt: async () => {
        await (await createKeyManager(options)).close();
        await createKeyManager({ ...options, wrappingKeys: newWrappingKey() });
      },
      library: /not given; put it into wrappingKeys, beside the others; if nobody has that key, see [^;]+$/,
      text: /put it into --wrapping-key-file or JWKSD_WRAPPING_KEYS, .*; jwksd keys wrapping-keys prints .* \[ERR_WRAPPING_KEY_MISSING\]$/,
    },
    {
      name: "the keys of another issuer",
      attempt: async () => {
        await (await createKeyManager(options)).close();
        await createKeyManager({ ...options, issuer: "https://b.example" });
      },
      library: /go on with the issuer https:\/\/a\.example, or use another store$/,
      text: /or use another store; --issuer names the issuer; --data or --store, another store \[ERR_STORE_ISSUER\]$/,
    },
  ];
  for (const { name, attempt, library, text } of rows) {
    test(name, async () => {
      const error = await attempt().then(
        () => assert.fail("it is refused"),
        (thrown: unknown) => thrown,
      );
      assert.ok(error instanceof JwksdError);
      assert.match(error.message, library);
      assert.doesNotMatch(error.message, /(^|\W)--[a-z]/);
      assert.match(errorText(error), text);
    });
  }

  test("a member of a file keeps its name", () => {
    const error = new ConfigError("ERR_OPTION_INVALID", '"rotateEveryDays" of the configuration file must be a number');
    assert.equal(errorText(error), `${error.message} [ERR_OPTION_INVALID]`);
  });
});
