import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, renameSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { type JSONWebKeySet, createLocalJWKSet, jwtVerify } from "jose";
import { type Clock, systemClock } from "../../src/base/clock.ts";
import { JwksdError, type Provider, createProvider } from "../../src/index.ts";
import { pkcs11Backend } from "../../src/keys/pkcs11/backend.ts";
import type { Pkcs11Options } from "../../src/keys/pkcs11/options.ts";
import { parseKeyUri } from "../../src/keys/pkcs11/uri.ts";
import { slowTimeoutMs } from "../../src/keys/signer/backend-options.ts";
import { inputOf } from "../../src/testing/signer-tests.ts";
import { children, statusOf } from "../support/children.ts";
import { listening } from "../support/listening.ts";
import { Client } from "../support/load.ts";
import { eventually } from "../support/service.ts";
import { simulatedClock } from "../support/simulated.ts";
import { soak } from "../support/soak.ts";
import { createShim, createSoftHsm, skipWithoutPkcs11 } from "../support/softhsm.ts";

const issuer = "https://op.example";
const input = inputOf("header.claims");
const audience = "api";

type Scope = { after(fn: () => Promise<void>): void };

/** Creates a provider that signs with a key on a token behind the shim. */
async function setUp(t: Scope, options: Pkcs11Options = {}, clock: Clock = systemClock) {
  const token = await createSoftHsm(t);
  const shim = createShim(token);
  const own = { modulePath: shim.modulePath, pin: { file: token.pinFile }, token: token.uri };
  const backend = pkcs11Backend({ ...own, ...options }, clock);
  const signer = await backend.create({ issuer });
  token.atEnd(() => {
    shim.control();
    return signer.close();
  });
  const provider = await createProvider({ issuer, keyset: [{ kid: "hsm", signer }] });
  /** Returns the lines of the module's log about a function. */
  const logged = (name: string): string[] => shim.log().filter((line) => line.startsWith(`${name} `));
  return { token, shim, backend, signer, provider, logged };
}

/** Like {@link setUp}, with deadlines and retries by a clock that the test advances. */
async function setUpWithClock(t: Scope, options: Pkcs11Options = {}) {
  const clock = simulatedClock();
  return { clock, ...(await setUp(t, options, clock)) };
}

const timeoutMs = 5_000;
const few = soak(50, 15);

/** Signs for many callers concurrently and verifies every token as a relying party does. */
function startLoad(provider: Provider, callers = soak(32, 8)) {
  const errors: JwksdError[] = [];
  let signed = 0;
  const stopping = new AbortController();
  const run = async (): Promise<void> => {
    const set = (await (await provider.fetch(new Request(provider.jwksUri))).json()) as JSONWebKeySet;
    const keys = createLocalJWKSet(set);
    while (!stopping.signal.aborted) {
      try {
        const token = await provider.sign({ sub: "alice", aud: audience }, { lifetimeSeconds: 60 });
        await jwtVerify(token, keys, { issuer, audience, algorithms: ["ES256"] });
        signed += 1;
      } catch (error) {
        // A wrong signature is an error from jose, which has another class.
        assert.ok(error instanceof JwksdError, String(error));
        errors.push(error);
        // A caller that receives an error immediately retries later.
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
    }
  };
  const done = Promise.all(Array.from({ length: callers }, run));
  return {
    errors,
    signed: () => signed,
    async more(count: number) {
      const goal = signed + count;
      await eventually(`${count} more tokens; ${errors.at(-1)?.message}`, () => signed >= goal);
    },
    async stop() {
      stopping.abort();
      await done;
    },
  };
}

describe(
  "a signer whose token becomes unavailable and comes back under load",
  { skip: skipWithoutPkcs11("cc") },
  () => {
    const absences: [name: string, lines: string[]][] = [
      ["removed", ["C_SignInit fail 0x32", "C_Sign fail 0x32", "C_OpenSession fail 0x32", "C_GetTokenInfo fail 0xE0"]],
      ["not present", ["C_Sign fail 0xE0", "C_GetTokenInfo fail 0xE0"]],
      ["without its sessions", ["C_SignInit fail 0xB3", "C_GetTokenInfo fail 0xE0"]],
      ["without its login", ["C_SignInit fail 0x101", "C_GetTokenInfo fail 0xE0"]],
      ["without its handles", ["C_SignInit fail 0x60", "C_GetTokenInfo fail 0xE0"]],
      ["failing, without a free session", ["C_Sign fail 0x30", "C_OpenSession fail 0x30"]],
      ["failing without a reason", ["C_Sign fail 0x6"]],
    ];
    let shared: Awaited<ReturnType<typeof setUp>>;
    const ends: (() => Promise<void>)[] = [];
    before(async () => {
      shared = await setUp({ after: (end) => void ends.push(end) });
    });
    after(async () => {
      for (const end of ends) await end();
    });

    for (const [name, lines] of absences) {
      test(`${name}: errors are retryable, signing recovers on its own, and every token verifies`, async () => {
        const { shim, provider, logged } = shared;
        const starts = logged("C_Initialize").length;
        const load = startLoad(provider);
        await load.more(few);
        shim.control(...lines);
        await eventually("errors", () => load.errors.length > 2 * few);
        shim.control();
        await load.more(few);
        await load.stop();
        const codes = new Set(load.errors.map(({ code }) => code));
        codes.delete("ERR_SIGNER_TIMEOUT");
        assert.deepEqual([...codes], ["ERR_SIGNER_UNAVAILABLE"]);
        assert.ok(load.errors.every(({ retryable }) => retryable));
        assert.ok(logged("C_Initialize").length > starts, "was not opened again");
        assert.deepEqual(new Set(logged("C_Finalize")), new Set(["C_Finalize 0"]), "finalized with calls in flight");
      });
    }

    test("completes calls in flight before it finalizes the module", async () => {
      const { shim, signer, logged } = shared;
      const [logins, ends] = [logged("C_Login").length, logged("C_Finalize").length];
      shim.control("C_Sign delay 300", "C_Sign log");
      const inFlight = Array.from({ length: 8 }, () => signer.sign(input));
      await eventually("the token has the calls", () => logged("C_Sign").length === 8);
      shim.control("C_Sign delay 300", "C_SignInit fail 0x32");
      await assert.rejects(signer.sign(input), { code: "ERR_SIGNER_UNAVAILABLE" });
      for (const signature of await Promise.all(inFlight)) assert.equal(signature.length, 64);
      shim.control();
      await eventually("the token is opened again", () => logged("C_Login").length === logins + 1);
      assert.deepEqual(logged("C_Finalize").slice(ends), ["C_Finalize 0"]);
    });

    test("never returns an invalid signature", async () => {
      const { shim, provider } = shared;
      const load = startLoad(provider, 4);
      await load.more(10);
      shim.control("C_Sign corrupt");
      await eventually("errors", () => load.errors.length > 20);
      shim.control();
      await load.more(10);
      await load.stop();
      assert.deepEqual([...new Set(load.errors.map(({ code }) => code))], ["ERR_SIGNER_BAD_SIGNATURE"]);
    });

    test("loses only the session in which a signature failed", async () => {
      const { shim, signer, logged } = shared;
      const starts = logged("C_Initialize").length;
      for (const value of ["0x30", "0x90", "0x6"]) {
        shim.control(`C_Sign fail ${value}`);
        await assert.rejects(signer.sign(input), { code: "ERR_SIGNER_UNAVAILABLE" });
        shim.control();
        // As many as there are sessions, so the one that failed is among them.
        for (const signature of await Promise.all(Array.from({ length: 16 }, () => signer.sign(input)))) {
          assert.equal(signature.length, 64);
        }
      }
      assert.equal(logged("C_Initialize").length, starts);
    });

    const kinds: [value: string, code: string][] = [
      ["0x31", "ERR_SIGNER_THROTTLED"],
      ["0xB1", "ERR_SIGNER_THROTTLED"],
      ["0x68", "ERR_SIGNER_KEY_STATE"],
      ["0x70", "ERR_SIGNER_KEY_STATE"],
      ["0x30", "ERR_SIGNER_UNAVAILABLE"],
      ["0x80000001", "ERR_SIGNER_UNAVAILABLE"],
    ];
    for (const [value, code] of kinds) {
      test(`the return value ${value} causes ${code}`, async () => {
        const { shim, signer } = shared;
        shim.control(`C_SignInit fail ${value}`);
        await assert.rejects(signer.sign(input), { code });
        shim.control();
        await signer.sign(input);
      });
    }

    test("recovers even if the token's folder is moved away and back", async (t) => {
      const { token, shim, provider } = await setUp(t);
      const load = startLoad(provider);
      await load.more(few);
      renameSync(token.tokenFolder, `${token.tokenFolder}.away`);
      // SoftHSM keeps signing with what it has read; a process that starts now finds nothing.
      shim.control("C_Sign crash");
      await eventually("errors", () => load.errors.length > 0);
      shim.control();
      await eventually("errors", () => load.errors.length > few);
      const signedAway = load.signed();
      renameSync(`${token.tokenFolder}.away`, token.tokenFolder);
      await load.more(few);
      await load.stop();
      assert.ok(load.signed() > signedAway);
      assert.ok(load.errors.every(({ retryable }) => retryable));
    });

    test("does not sign with a different key that has the same name as a deleted key", async (t) => {
      const { token, shim, signer } = await setUp(t);
      const { key } = parseKeyUri(signer.uri);
      const name = ["--label", key.label ?? "", "--id", Buffer.from(key.id ?? []).toString("hex")];
      token.pkcs11Tool("--delete-object", "--type", "privkey", ...name);
      token.pkcs11Tool("--delete-object", "--type", "pubkey", ...name);
      shim.control("C_Sign crash");
      await assert.rejects(signer.sign(input), { code: "ERR_SIGNER_UNAVAILABLE" });
      shim.control();
      const outcome = (): Promise<string> => signer.sign(input).then(() => "signed", String);
      await eventually("the key is deleted", async () => /has no private key with /.test(await outcome()));
      token.pkcs11Tool("--keypairgen", "--key-type", "EC:prime256v1", ...name);
      await assert.rejects(signer.sign(input), { code: "ERR_SIGNER_KEY_STATE", message: /a different key/ });
    });
  },
);

describe("a module that hangs", { skip: skipWithoutPkcs11("cc") }, () => {
  for (const call of ["C_Sign", "C_SignInit"]) {
    test(`in ${call}: /jwks is served, the process is replaced after the deadline, and signing resumes`, async (t) => {
      const { clock, shim, signer, provider, logged } = await setUpWithClock(t);
      const client = await Client.open(await listening(t, createServer(provider.node)));
      t.after(() => client.close());
      const [hanging = 0] = children();
      shim.control(`${call} hang`, "C_Sign log");
      const outcomes: unknown[] = [];
      const signing = Array.from({ length: 20 }, () =>
        signer.sign(input).then(
          () => outcomes.push("signed"),
          ({ code }: JwksdError) => outcomes.push(code),
        ),
      );
      await eventually("the module hangs", () => isHeld(hanging) || logged("C_Sign").length === 16);
      for (let asked = 0; asked < 20; asked += 1) {
        const reply = await client.request("GET /jwks HTTP/1.1\r\nHost: op.example\r\n\r\n");
        assert.equal(reply.status, 200);
      }
      await clock.advance(timeoutMs - 1);
      assert.deepEqual(outcomes, []);
      await clock.advance(1);
      await Promise.all(signing);
      // The calls that waited for a session did not take too long themselves.
      const codes = [
        ...Array.from({ length: 16 }, () => "ERR_SIGNER_TIMEOUT"),
        ...Array.from({ length: 4 }, () => "ERR_SIGNER_UNAVAILABLE"),
      ];
      assert.deepEqual(outcomes, codes);
      await eventually("the process has ended", () => !children().includes(hanging));
      shim.control();
      await eventually("it signs again", async () => {
        await clock.advance(100);
        return signer.sign(input).then(
          ({ length }) => length === 64,
          ({ retryable }: JwksdError) => !retryable,
        );
      });
      assert.equal(logged("C_Initialize").length, 2);
    });
  }

  test("blocks only callers that have not aborted their calls", async (t) => {
    const { shim, signer } = await setUp(t, { sessions: 1 });
    shim.control("C_Sign hang");
    const controller = new AbortController();
    const given = signer.sign({ ...input, signal: controller.signal });
    const others = [signer.sign(input), signer.sign(input)];
    const queued = new AbortController();
    const gone = signer.sign({ ...input, signal: queued.signal });
    controller.abort();
    queued.abort();
    await assert.rejects(given, { code: "ERR_SIGNER_ABORTED" });
    await assert.rejects(gone, { code: "ERR_SIGNER_ABORTED" });
    shim.control();
    for (const signature of await Promise.all(others)) assert.equal(signature.length, 64);
  });

  test("is terminated by close(), which waits for signatures in flight", async (t) => {
    const { clock, shim, signer, backend, logged } = await setUpWithClock(t);
    // It keeps the token's process.
    const other = await backend.open(signer.uri);
    shim.control("C_Sign delay 100");
    let signed = 0;
    const signatures = Array.from({ length: 20 }, () => signer.sign(input).finally(() => (signed += 1)));
    await signer.close();
    assert.equal(signed, 20);
    for (const signature of await Promise.all(signatures)) assert.equal(signature.length, 64);
    await assert.rejects(signer.sign(input), { code: "ERR_SIGNER_UNAVAILABLE" });
    assert.equal((await other.sign(input)).length, 64);
    assert.equal(children().length, 1);
    await other.close();
    assert.deepEqual(children(), []);
    assert.deepEqual(logged("C_Finalize"), ["C_Finalize 0"]);

    const stuck = await backend.open(signer.uri);
    shim.control("C_Finalize hang");
    const closing = stuck.close();
    await eventually("the module hangs", () => logged("C_Finalize").length === 2);
    await clock.advance(timeoutMs);
    await closing;
    assert.deepEqual(children(), []);
    assert.equal(clock.timers, 0, "a timer remains");
  });

  test("while starting makes a call fail at the call's deadline, but the call can be retried", async (t) => {
    const { clock, shim, signer, backend, logged } = await setUpWithClock(t);
    await signer.close();
    shim.control("C_Initialize hang");
    const opening = assert.rejects(backend.open(signer.uri), { code: "ERR_SIGNER_UNAVAILABLE", retryable: true });
    await eventually("the module hangs", () => logged("C_Initialize").length === 2);
    await clock.advance(slowTimeoutMs);
    await opening;
    shim.control();
    const again = await backend.open(signer.uri);
    assert.equal((await again.sign(input)).length, 64);
    await again.close();
  });

  for (const hang of [["C_SignInit hang"], []].slice(0, soak(2, 1))) {
    test(`the process exits when its parent exits${hang.length === 0 ? "" : ", even while the module is blocking the process"}`, async (t) => {
      const { token, shim, signer } = await setUp(t);
      const backendModule = fileURLToPath(new URL("../../src/keys/pkcs11/backend.ts", import.meta.url));
      const options = { modulePath: shim.modulePath, pin: { file: token.pinFile } };
      const script = `
        import { pkcs11Backend } from ${JSON.stringify(backendModule)};
        const signer = await pkcs11Backend(${JSON.stringify(options)}).open(${JSON.stringify(signer.uri)});
        console.log("open");
        process.stdin.once("data", () => void signer.sign({ digest: new Uint8Array(32) }).catch(() => {}));
      `;
      const parent = spawn(process.execPath, ["--input-type=module", "-e", script], {
        stdio: ["pipe", "pipe", "inherit"],
      });
      await once(parent.stdout, "data");
      const [child] = children(parent.pid);
      assert.ok(child !== undefined);
      shim.control(...hang);
      parent.stdin.write("sign\n");
      await eventually("the process is busy", () => hang.length === 0 || isHeld(child));
      parent.kill("SIGKILL");
      await once(parent, "exit");
      await eventually("the process has ended", () => !isAlive(child));
      if (hang.length === 0) assert.equal(shim.log().at(-1), "C_Finalize 0");
    });
  }
});

function isAlive(pid: number): boolean {
  const state = statusOf(pid, "State");
  return state !== undefined && !/^[ZX]/.test(state);
}

/** Reports whether the main thread is in the shim's loop of short sleeps. */
function isHeld(pid: number): boolean {
  try {
    return /nanosleep/.test(readFileSync(join("/proc", String(pid), "wchan"), "utf8"));
  } catch {
    return false;
  }
}

describe("destroys a new key that cannot be used", { skip: skipWithoutPkcs11("cc") }, () => {
  const failures: readonly (readonly [name: string, lines: readonly string[]])[] = [
    ["the module hangs during its first signature", ["C_Sign hang"]],
    ["the module crashes during its first signature", ["C_Sign crash"]],
    ["its public key cannot be read", ["C_GetAttributeValue fail 0x30"]],
  ];
  for (const [name, lines] of failures) {
    test(name, async (t) => {
      const { clock, token, shim, backend, logged } = await setUpWithClock(t);
      const count = (): number => token.pkcs11Tool("--list-objects").match(/Key Object/g)?.length ?? 0;
      const before = count();
      // The module's faults from here on end when the next process starts.
      const failed = backend.create({ issuer }).then(
        () => assert.fail("the key was generated"),
        (error: unknown) => error,
      );
      shim.control(...lines, "C_Sign log");
      if (lines.includes("C_Sign hang")) {
        await eventually("the module hangs", () => logged("C_Sign").length > 0);
        await clock.advance(timeoutMs);
      }
      const error = await failed;
      assert.ok(error instanceof JwksdError, String(error));
      const left = count() - before;
      // If the module still fails, the key cannot be destroyed, and the error names it.
      assert.ok(left === 0 || error.message.includes("may remain on the token"), `${left} left: ${error.message}`);
    });
  }
});
