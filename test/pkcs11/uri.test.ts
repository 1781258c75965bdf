import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { inspect } from "node:util";
import fc from "fast-check";
import { ConfigError } from "../../src/index.ts";
import { childEnvironment } from "../../src/keys/pkcs11/child-environment.ts";
import { formatKeyUri, parseKeyUri, parsePkcs11Uri } from "../../src/keys/pkcs11/uri.ts";

describe("PKCS#11 URIs (RFC 7512)", () => {
  const validUris: [uri: string, parsed: object][] = [
    ["pkcs11:token=t;object=k", { token: { label: "t" }, key: { label: "k" } }],
    ["PKCS11:object=k;token=t", { token: { label: "t" }, key: { label: "k" } }],
    ["pkcs11:serial=00ab;id=%0a%FF", { token: { serial: "00ab" }, key: { id: Uint8Array.of(10, 255) } }],
    ["pkcs11:token=t;id=ab%00", { token: { label: "t" }, key: { id: Uint8Array.of(97, 98, 0) } }],
    [
      "pkcs11:model=m;manufacturer=Snake%20Oil;serial=1;token=My%20token%3B%20%C3%A9;object=a%2Fb;type=private",
      { token: { label: "My token; é", serial: "1", manufacturer: "Snake Oil", model: "m" }, key: { label: "a/b" } },
    ],
    ["pkcs11:slot-id=1636395518;object=k", { token: { slotId: 1636395518 }, key: { label: "k" } }],
    ["pkcs11:token=a&b=c;object=k", { token: { label: "a&b=c" }, key: { label: "k" } }],
    ["pkcs11:token=t;object=k?module-path=/usr/lib/m.so", { modulePath: "/usr/lib/m.so" }],
    ["pkcs11:token=t;object=k?pin-source=file:/etc/pin", { pinFile: "/etc/pin" }],
    ["pkcs11:token=t;object=k?pin-source=file:///etc/a%2520b", { pinFile: "/etc/a b" }],
    [
      "pkcs11:token=t;object=k?pin-source=%2Fetc%2Fpin&module-path=%2Fm.so",
      { pinFile: "/etc/pin", modulePath: "/m.so" },
    ],
  ];
  for (const [uri, expected] of validUris) {
    test(`${uri} is parsed`, () => {
      const none = { token: {}, key: {}, modulePath: undefined, pinFile: undefined };
      const whole = "token" in expected ? {} : { token: { label: "t" }, key: { label: "k" } };
      assert.deepEqual(parseKeyUri(uri), { ...none, ...whole, ...expected });
    });
  }

  const secret = "s3cr3t-19283746";
  const wrongUris: [uri: unknown, rule: RegExp][] = [
    [undefined, /begin with "pkcs11:"/],
    ["", /begin/],
    [`pin:${secret}`, /begin/],
    ["pkcs11:", /does not name a token/],
    ["pkcs11:object=k", /does not name a token/],
    ["pkcs11:token=t", /does not name a key/],
    ["pkcs11:token=t;token=u;object=k", /"token" is repeated/],
    ["pkcs11:token=t;object=k;", /malformed/],
    ["pkcs11:token=t;;object=k", /malformed/],
    ["pkcs11:token;object=k", /"token" is malformed/],
    ["pkcs11:token=t;object=a b", /"object" is malformed/],
    ["pkcs11:token=t;object=a/b", /"object" is malformed/],
    ["pkcs11:token=t;object=%4", /"object" is malformed/],
    ["pkcs11:token=t;object=%zz", /"object" is malformed/],
    ["pkcs11:token=t;object=é", /"object" is malformed/],
    ["pkcs11:token=t;object=k#fragment", /"object" is malformed/],
    ["pkcs11:token=t;object=%FF", /"object" is not UTF-8/],
    ["pkcs11:token=t;id=", /"id" is empty/],
    ["pkcs11:token=;object=login", /"token" is empty/],
    ["pkcs11:token=t;object=", /"object" is empty/],
    ["pkcs11:token=t;serial=;object=k", /"serial" is empty/],
    ["pkcs11:token=t;object=k;slot-id=", /"slot-id" is empty/],
    ["pkcs11:token=t;object=k?module-path=", /"module-path" is empty/],
    ["pkcs11:token=t;object=k?pin-source=", /"pin-source" is empty/],
    ["pkcs11:token=t;object=k;type=public", /"type" is not "private"/],
    ["pkcs11:token=t;object=k;library-version=3", /"library-version" is not supported/],
    ["pkcs11:token=t;object=k;x-vendor=1", /"x-vendor" is not supported/],
    ["pkcs11:token=t;object=k;slot-id=0x10", /"slot-id" is not/],
    ["pkcs11:token=t;object=k;module-path=/m.so", /"module-path" is not supported/],
    ["pkcs11:token=t;object=k?module-path=m.so", /"module-path" is not an absolute path/],
    ["pkcs11:token=t;object=k?module-name=softhsm2", /"module-name" is not supported/],
    ["pkcs11:token=t;object=k?pin-source=pin.txt", /"pin-source" is not the absolute path/],
    ["pkcs11:token=t;object=k?pin-source=%7Ccat%20/etc/pin", /"pin-source" is not the absolute path/],
    ["pkcs11:token=t;object=k?pin-source=https://host/pin", /"pin-source" is not the absolute path/],
    [`pkcs11:token=t;object=k?pin-value=${secret}`, /contains a PIN/],
    [`pkcs11:token=t;object=k;pin-value=${secret}`, /contains a PIN/],
    [`pkcs11:token=t;object=k?pin-source=file:/p&pin-value=${secret}`, /contains a PIN/],
    [`pkcs11:token=t;object=k?${secret}`, /malformed/],
  ];
  for (const [uri, rule] of wrongUris) {
    test(`${String(uri)} is rejected`, () => {
      assert.throws(
        () => parseKeyUri(uri as string),
        (error: unknown) => {
          assert.ok(error instanceof ConfigError);
          assert.equal(error.code, "ERR_SIGNER_URI");
          assert.match(error.message, rule);
          assert.ok(!inspect(error, { depth: 9 }).includes(secret));
          return true;
        },
      );
    });
  }

  test("the URI of a token does not name a key", () => {
    assert.deepEqual(parsePkcs11Uri("pkcs11:token=t").key, {});
  });

  test("empty attributes are omitted", () => {
    const id = Uint8Array.of(1);
    assert.equal(formatKeyUri({ label: "", serial: "1" }, { id, label: "" }), "pkcs11:serial=1;id=%01;type=private");
    assert.equal(formatKeyUri({ label: "t", serial: "" }, { label: "k" }), "pkcs11:token=t;object=k;type=private");
  });

  test("names formatted as a URI and parsed again are unchanged, whatever they contain", () => {
    const name = fc.string({ minLength: 1, unit: "grapheme" });
    fc.assert(
      fc.property(name, name, name, fc.uint8Array({ minLength: 1 }), (label, serial, object, id) => {
        const { token, key } = parseKeyUri(formatKeyUri({ label, serial }, { id, label: object }));
        assert.deepEqual(
          [token, key],
          [
            { label, serial },
            { id, label: object },
          ],
        );
      }),
    );
  });
});

const secrets = {
  JWKSD_WRAPPING_KEYS: "s",
  VAULT_TOKEN: "s",
  AWS_SECRET_ACCESS_KEY: "s",
  NODE_AUTH_TOKEN: "s",
  PGPASSWORD: "s",
};

test("a child process receives the common variables, the named variables, and nothing else", () => {
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

test("a named variable is passed even if it is a secret", () => {
  assert.deepEqual(childEnvironment(secrets, ["VAULT_TOKEN"]), { VAULT_TOKEN: "s" });
});
