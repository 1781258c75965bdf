import assert from "node:assert/strict";
import { test } from "node:test";
import { childEnvironment } from "../../src/keys/pkcs11/child-environment.ts";

const secrets = {
  JWKSD_WRAPPING_KEYS: "s",
  VAULT_TOKEN: "s",
  AWS_SECRET_ACCESS_KEY: "s",
  NODE_AUTH_TOKEN: "s",
  PGPASSWORD: "s",
};

test("a child gets what any program needs, what is named, and nothing else", () => {
  const needed = {
    PATH: "/bin",
    HOME: "/root",
    LANG: "C",
    LC_TIME: "de",
    TZ: "UTC",
    XDG_RUNTIME_DIR: "/run",
    NODE_COMPILE_CACHE: "/c",
  };
  const named = { NODE_OPTIONS: "-x", NFAST_HOME: "/opt", Path_Of_Module: "/m" };
  const others = { NODE_OPTIONS_MORE: "x", XNFAST_HOME: "x", LC: "x", EMPTY: undefined };
  assert.deepEqual(
    childEnvironment({ ...secrets, ...needed, ...named, ...others }, [
      "NODE_OPTIONS",
      "NFAST_*",
      "path_of_module",
      "EMPTY",
    ]),
    { ...needed, ...named },
  );
});

test("a secret that is named is what was asked for", () => {
  assert.deepEqual(childEnvironment(secrets, ["VAULT_TOKEN"]), { VAULT_TOKEN: "s" });
});
