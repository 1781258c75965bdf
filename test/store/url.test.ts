// Database URLs: a password that is not escaped is refused, and no message shows it.

import assert from "node:assert/strict";
import { test } from "node:test";
import { createKeyManager } from "../../src/rotation/index.ts";
import { etcdStore } from "../../src/rotation/store/databases/etcd.ts";
import { libsqlStore } from "../../src/rotation/store/databases/libsql.ts";
import { mysqlStore } from "../../src/rotation/store/databases/mysql.ts";
import { redisStore } from "../../src/rotation/store/databases/redis.ts";
import { postgresStore } from "../../src/rotation/store/postgres/postgres.ts";
import type { Register } from "../../src/rotation/store/register.ts";
import { hasPassword } from "../../src/service/config/database-scheme.ts";
import { newWrappingKey } from "../support/managed.ts";

const options = { issuer: "https://op.example", timeoutMs: 50 };
const stores: Readonly<Record<string, (url: string) => Register>> = {
  mysql: (url) => mysqlStore(url, options),
  redis: (url) => redisStore(url, options),
  libsql: (url) => libsqlStore(url, options),
  https: (url) => etcdStore(url, options),
  postgres: (url) => postgresStore(url, options),
};

for (const [scheme, open] of Object.entries(stores)) {
  test(`${scheme}: rejects an unescaped password and explains how to fix it, without showing the password`, async () => {
    const logins = [
      "u:12/cret",
      "u:pa/cret",
      "u:1cret@x/ret",
      "127.0.0.1:12/cret",
      "u:1?cret",
      "u:1#cret",
      "u:cr%et",
      "u:cret%ff",
      "u:\\cret",
    ];
    for (const login of [...logins, "u:pa?cret", "u:pa#cret", "u:p@cret", "%:cret", "u@cret:12"]) {
      const opening = (async () => open(`${scheme}://${login}@127.0.0.1:1/name`))();
      await assert.rejects(opening, ({ code, message }: Error & { code?: string }) => {
        assert.deepEqual([code, /cret|cr%et/.test(message)], ["ERR_OPTION_INVALID", false], `${login}: ${message}`);
        assert.match(message, /%2F, %5C/);
        return true;
      });
    }
    // The key manager's first call connects.
    const store = open(`${scheme}://u:%2F%5C%40%3F%23%25@127.0.0.1:1/1`);
    const starting = createKeyManager({ issuer: options.issuer, store, wrappingKeys: newWrappingKey() });
    await assert.rejects(starting, { code: "ERR_STORE_UNAVAILABLE" });
    await store.close?.();
  });
}

test("rejects URL options that mysql2 does not accept, without showing them", async () => {
  for (const query of ['ssl={"passphrase":"cret"', 'ssl={"passphrase":"cret"}}', "ssl=cret"]) {
    const store = mysqlStore(`mysql://127.0.0.1:1/name?${query}`, options);
    await assert.rejects(store.read(), ({ code, message }: Error & { code?: string }) => {
      assert.deepEqual([code, message.includes("cret")], ["ERR_OPTION_INVALID", false], `${query}: ${message}`);
      return true;
    });
  }
});

test("detects a secret anywhere in a URL, and never mistakes another parameter for a secret", () => {
  const secret = [
    "postgres://u:p@h/d",
    "postgres://u:p@/d?host=/run",
    "postgres://u@/d?host=/run&password=p",
    "postgres://u@h/d?sslpassword=p",
    "mysql://u@h/d?password1=p",
    "mysql://u@h/d?passwordSha1=p",
    'mysql://u@h/d?ssl={"passphrase":"p"}',
    "mysql://u@h/d?ssl=%7B%22passphrase%22%3A%22p%22",
    'mysql://u@h/d?ssl={"key":"-----BEGIN PRIVATE KEY-----"}',
    "redis://:p@h",
    'mysql://u@h/d?ssl={"pass\\u0070hrase":"p"}',
    'mysql://u@h/d?ssl={"key":[{"\\u0070assphrase":"p"}]}',
    ...["passphrase", "pwd", "pass", "PASSWD", "jwt", "pfx", "client_secret"].map(
      (name) => `mysql://u@h/d?a=b&${name}=p`,
    ),
    "libsql://h?authToken=t",
    "etcd://u:p@h:1,h:2",
  ];
  const plain = [
    "postgres://u@/d?host=/run",
    "postgres://:5432/d",
    "postgres://u@h:5432/d?sslkey=/k.pem&sslmode=require&passfile=/run/pass",
    "postgres://u@h/d?sslkey=/run/secrets/token.pem",
    'mysql://u@h:3306/d?ssl={"rejectUnauthorized":true}',
    "redis://h:6379/0",
    "libsql://h",
    "etcd://h:1,h:2",
    "sqlite:/a:b@c/keys.db",
  ];
  assert.deepEqual([...secret, ...plain].filter(hasPassword), secret);
});
