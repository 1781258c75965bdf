// URLs of databases: a password whose special characters are not escaped is refused, and never shown.
import assert from "node:assert/strict";
import { test } from "node:test";
import { etcdStore } from "../../src/rotation/store/databases/etcd.ts";
import { libsqlStore } from "../../src/rotation/store/databases/libsql.ts";
import { mysqlStore } from "../../src/rotation/store/databases/mysql.ts";
import { redisStore } from "../../src/rotation/store/databases/redis.ts";
import { postgresStore } from "../../src/rotation/store/postgres/postgres.ts";

const options = { issuer: "https://op.example", timeoutMs: 50 };
const stores: Readonly<Record<string, (url: string) => unknown>> = {
  mysql: (url) => mysqlStore(url, options),
  redis: (url) => redisStore(url, options),
  libsql: (url) => libsqlStore(url, options),
  https: (url) => etcdStore(url, options),
  postgres: (url) => postgresStore(url, options),
};

for (const [scheme, open] of Object.entries(stores)) {
  test(`${scheme}: what ends the host in a password is refused, with how to write it`, async () => {
    for (const login of [
      "u:12/cret",
      "u:1cret@x/ret",
      "127.0.0.1:12/cret",
      "u:1?cret",
      "u:1#cret",
      "u:cr%et",
      "%:cret",
    ]) {
      const opening = (async () => open(`${scheme}://${login}@127.0.0.1:1/name`))();
      await assert.rejects(opening, ({ code, message }: Error & { code?: string }) => {
        assert.deepEqual([code, /cret|cr%et/.test(message)], ["ERR_OPTION_INVALID", false], `${login}: ${message}`);
        return true;
      });
    }
  });
}
