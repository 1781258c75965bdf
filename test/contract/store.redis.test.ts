import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { type TestContext, after, test } from "node:test";
import { Redis } from "ioredis";
import { createClient } from "redis";
import { createProvider } from "../../src/provider/create-provider.ts";
import { createKeyManager } from "../../src/rotation/manager/manager.ts";
import { redisStore } from "../../src/rotation/store/databases/redis.ts";
import type { ClosableRegister } from "../../src/rotation/store/register.ts";
import { cuttable } from "../support/cuttable.ts";
import { type Open, checkSample, checkWays, networkFaults, serverFaults, throughNetwork } from "../support/faults.ts";
import { newWrappingKey } from "../support/managed.ts";
import { skipWithout } from "../support/parts.ts";
import { startRedis } from "../support/redis.ts";
import { eventually } from "../support/service.ts";

const url = (port: number): string => `redis://:s3cret@127.0.0.1:${port}/2`;

if (skipWithout("redis-server") === false) {
  const server = await startRedis({ after });

  const ways: Record<string, Open> = {
    "by URL": (port, options) => redisStore(url(port), options),
    "a redis client": async (port, options, ends) => {
      const client = createClient({ url: url(port) }).on("error", () => {});
      await client.connect();
      ends.push(() => client.destroy());
      return redisStore(client, options);
    },
    "an ioredis client that returns numbers as strings": (port, options, ends) => {
      const client = new Redis(url(port), { socketTimeout: 1_000, stringNumbers: true }).on("error", () => {});
      ends.push(() => client.disconnect());
      return redisStore(client, options);
    },
    "an ioredis client": (port, options, ends) => {
      const client = new Redis(url(port), { socketTimeout: 1_000 }).on("error", () => {});
      ends.push(() => client.disconnect());
      return redisStore(client, options);
    },
  };
  checkWays(
    Object.entries(ways).map(([name, way]) => {
      const { "the network falls silent": silent, ...broken } = networkFaults("during");
      const faults = { ...broken, ...(name === "by URL" && serverFaults("during", server)) };
      // A redis client does not notice silence until the system closes its connection.
      const notices = name !== "a redis client" && silent && { "the network falls silent": silent };
      return [`Redis, ${name}`, throughNetwork(server.port, way), { ...faults, ...notices }];
    }),
  );

  test("reports a server's error and its message, but no password", async (t) => {
    const refusal = async (url: string, call: "read" | "confirmed read" | "write"): Promise<string> => {
      const register = redisStore(url, { issuer: "https://op.example" });
      t.after(() => register.close?.());
      const calling =
        call === "write" ? register.write("text", undefined) : register.read("", { confirmed: call !== "read" });
      const { code, message } = (await (calling as Promise<unknown>).then(
        () => assert.fail("it did not refuse"),
        (error: unknown) => error,
      )) as Error & {
        code: string;
      };
      assert.doesNotMatch(message, /s3cret|wr0ng/);
      return `${code} ${message}`;
    };
    assert.match(
      await refusal(url(server.port).replace("s3cret", "wr0ng"), "write"),
      /^ERR_STORE_UNAVAILABLE .*WRONGPASS/,
    );
    assert.match(await refusal(url(1), "write"), /^ERR_STORE_UNAVAILABLE .*ECONNREFUSED/);
    const standby = await startRedis(t, "--replicaof", `127.0.0.1 ${server.port}`, "--masterauth", "s3cret");
    assert.match(await refusal(url(standby.port), "write"), /^ERR_STORE_READ_ONLY /);
    // A primary that was cut off still answers plain reads.
    const alone = await startRedis(t, "--min-replicas-to-write", "1");
    const register = redisStore(url(alone.port), { issuer: "https://op.example" });
    t.after(() => register.close?.());
    assert.equal((await register.read()).version, undefined);
    for (const call of ["confirmed read", "write"] as const) {
      assert.match(await refusal(url(alone.port), call), /^ERR_STORE_UNAVAILABLE .*NOREPLICAS/);
    }
  });

  test("after a failover, writes reach the new primary without a restart, even if both primaries share an address", async (t) => {
    const [former, next] = [await startRedis(t), await startRedis(t, "--masterauth", "s3cret")];
    const address = await cuttable(former.port);
    t.after(() => address.close());
    const command = async (port: number, ...words: string[]): Promise<unknown> => {
      const client = await createClient({ url: url(port) }).connect();
      return client.sendCommand(words).finally(() => client.destroy());
    };
    const reconnecting = new Redis(url(address.port), {
      reconnectOnError: ({ message }) => /READONLY|NOREPLICAS/.test(message),
    });
    t.after(() => reconnecting.disconnect());
    const stores = {
      "by URL": redisStore(url(address.port), { issuer: "https://url.example" }),
      "an ioredis client, as in docs/stores.md": redisStore(reconnecting, {
        issuer: "https://client.example",
      }),
    };
    for (const [name, store] of Object.entries(stores)) {
      t.after(() => store.close());
      assert.equal(await store.write("before", undefined), true, name);
    }
    await command(next.port, "REPLICAOF", "127.0.0.1", `${former.port}`);
    await eventually("the replica is in sync", async () =>
      String(await command(next.port, "INFO", "replication")).includes("master_link_status:up"),
    );
    await command(next.port, "REPLICAOF", "NO", "ONE");
    await command(former.port, "CONFIG", "SET", "masterauth", "s3cret");
    await command(former.port, "REPLICAOF", "127.0.0.1", `${next.port}`);
    address.routeNewTo(next.port);
    for (const [name, store] of Object.entries(stores)) {
      const refused = await store.presence?.put("id", "record").catch(({ code }: { code: string }) => code);
      assert.equal(refused, "ERR_STORE_READ_ONLY", `${name}: a demoted primary refuses`);
      const { version, text } = await store.read(undefined, { confirmed: true });
      assert.equal(text, "before", name);
      assert.equal(await store.write("after", version), true, name);
    }
  });

  /** Opens a store as a user with these permissions. */
  async function limited(t: TestContext, issuer: string, permissions: string): Promise<ClosableRegister> {
    const root = await createClient({ url: url(server.port) }).connect();
    t.after(() => root.destroy());
    await root.sendCommand(["ACL", "SETUSER", "limited", "reset", "on", ">s3cret", ...permissions.split(" ")]);
    const user = url(server.port).replace(":s3cret", "limited:s3cret").replace("/2", "");
    const register = redisStore(user, { issuer });
    t.after(() => register.close());
    return register;
  }
  const [, permissions = ""] = /`(~jwksd:\* [^`]+)`/.exec(readFileSync("docs/stores.md", "utf8")) ?? [];

  test("with a user that lacks +hset and +hdel, a process cannot write, but is ready and can sign", async (t) => {
    const issuer = "https://reader.example";
    const [writer, reader] = [
      redisStore(url(server.port).replace("/2", ""), { issuer }),
      await limited(t, issuer, permissions.replace(/ \+(hset|hdel)/g, "")),
    ];
    t.after(() => writer.close());
    const wrappingKeys = newWrappingKey();
    await (await createKeyManager({ issuer, store: writer, wrappingKeys })).close();
    const { version } = await reader.read(undefined, { confirmed: true });
    await assert.rejects(reader.write("text", version), { code: "ERR_STORE_READ_ONLY" });
    await assert.rejects(async () => reader.presence?.put("id", "record"), { code: "ERR_STORE_READ_ONLY" });
    const manager = await createKeyManager({ issuer, store: reader, wrappingKeys });
    t.after(() => manager.close());
    const provider = await createProvider({ keys: manager });
    assert.ok(manager.isReady);
    assert.equal((await provider.sign({ sub: "a" }, { lifetimeSeconds: 60 })).split(".").length, 3);
  });

  test("the permissions in docs/stores.md are sufficient", async (t) => {
    const register = await limited(t, "https://limited.example", permissions);
    assert.equal(await register.write("text", undefined), true);
    assert.equal((await register.read(undefined, { confirmed: true })).text, "text");
    await register.presence?.put("id", "record");
    assert.deepEqual(await register.presence?.list(9), { records: new Map([["id", "record"]]), count: 1 });
    await register.presence?.drop(["id"]);
  });

  checkSample("examples/docs/store-redis.mts", () => ({ "redis://jwksd@db.example/0": url(server.port) }));
}
