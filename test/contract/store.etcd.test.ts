import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, test } from "node:test";
import { type EtcdStoreOptions, etcdStore } from "../../src/rotation/store/databases/etcd.ts";
import { checkRegister } from "../../src/testing/register.ts";
import { startEtcd } from "../support/etcd.ts";
import { checkSample, networkFaults, serverFaults, throughNetwork } from "../support/faults.ts";
import { skipWithout } from "../support/parts.ts";
import { eventually } from "../support/service.ts";

const urlOf = (port: number): string => `http://127.0.0.1:${port}`;
const base64 = (text: string): string => Buffer.from(text).toString("base64");
const op = (more: Partial<EtcdStoreOptions> = {}): EtcdStoreOptions => ({
  issuer: `https://op.example/${randomUUID()}`,
  ...more,
});

if (skipWithout("etcd") === false) {
  const members = await startEtcd({ after });
  const urls = members.map(({ daemon }) => urlOf(daemon.port));
  const [one, ...others] = members as [(typeof members)[0], ...typeof members];
  const ready = etcdStore(urls, op());
  await eventually("etcd has a leader", () =>
    ready.read().then(
      () => true,
      () => false,
    ),
  );

  const open = throughNetwork(one.daemon.port, (port, options) => etcdStore([urlOf(port), ...urls.slice(1)], options));
  const during = base64("during");
  checkRegister("etcd with three members", open, {
    ...networkFaults(during),
    ...serverFaults(during, one.daemon),
    "a member is cut off": async () => {
      one.peers.silence();
      return async () => one.peers.mend();
    },
  });

  test("members that do not hear each other answer no read, the one that led neither", async () => {
    const alone = urls.map((url) => etcdStore(url, op({ timeoutMs: 2_000 })));
    for (const { peers } of members) peers.silence();
    const outcomes = await Promise.allSettled(alone.map((register) => register.read()));
    for (const { peers } of members) peers.mend();
    for (const outcome of outcomes) assert.ok(outcome.status === "rejected");
    await eventually("etcd has a leader again", () =>
      Promise.all(alone.map((register) => register.read())).then(
        () => true,
        () => false,
      ),
    );
  });

  test("a user with a password is who may, also when the token has been lost", async (t) => {
    const { port } = one.daemon;
    let token = "";
    const admin = async (path: string, body: object): Promise<string> => {
      const init = {
        method: "POST",
        headers: token === "" ? {} : { Authorization: token },
        body: JSON.stringify(body),
      };
      const response = await fetch(`${urlOf(port)}/v3/auth/${path}`, init);
      assert.ok(response.ok, `${path}: ${await response.clone().text()}`);
      return ((await response.json()) as { token?: string }).token ?? "";
    };
    for (const name of ["root", "jwksd"]) await admin("user/add", { name, password: "s3cret:@" });
    await admin("role/add", { name: "root" });
    await admin("role/add", { name: "jwksd" });
    const perm = { permType: "READWRITE", key: base64("jwksd/"), range_end: base64("jwksd0") };
    await admin("role/grant", { name: "jwksd", perm });
    for (const name of ["root", "jwksd"]) await admin("user/grant", { user: name, role: name });
    await admin("enable", {});
    token = await admin("authenticate", { name: "root", password: "s3cret:@" });
    t.after(async () => {
      token = await admin("authenticate", { name: "root", password: "s3cret:@" });
      await admin("disable", {});
    });
    const refused = etcdStore(urls, op());
    await assert.rejects(refused.write("text", undefined), { code: "ERR_STORE_UNAVAILABLE" });
    const wrong = etcdStore(urlOf(port).replace("//", "//jwksd:wr0ng@"), op());
    const error = await wrong.read().catch((error: unknown) => error);
    assert.match(String(error), /authentication failed/);
    assert.doesNotMatch(String(error), /wr0ng/);
    const store = etcdStore(urlOf(port).replace("//", `//jwksd:${encodeURIComponent("s3cret:@")}@`), op());
    assert.equal(await store.write("text", undefined), true);
    // All tokens end.
    await admin("disable", {});
    token = "";
    await admin("enable", {});
    assert.equal((await store.read()).text, "text");
  });

  test("with one member stopped, the two others go on; with two stopped, no read is believed", async (t) => {
    const all = etcdStore(urls, op({ timeoutMs: 3_000 }));
    await one.daemon.kill();
    t.after(async () => {
      for (const { daemon } of members) await daemon.kill();
      await Promise.all(members.map(({ daemon }) => daemon.start()));
    });
    await eventually("a write", () => all.write("text", undefined).catch(() => false));
    assert.equal((await all.read()).text, "text");
    await others[0]?.daemon.kill();
    const error = await all.read(undefined, { confirmed: true }).then(
      () => assert.fail("it did not refuse"),
      (error: unknown) => error,
    );
    assert.equal((error as { code?: string }).code, "ERR_STORE_UNAVAILABLE");
  });

  checkSample("examples/docs/store-etcd.mts", () =>
    Object.fromEntries(["a", "b", "c"].map((name, index) => [`https://${name}.example:2379`, urls[index] ?? ""])),
  );
}
