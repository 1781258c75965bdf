import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type TestContext, describe, test } from "node:test";
import { inspect } from "node:util";
import { pkcs11Backend } from "../../src/keys/pkcs11/backend.ts";
import type { Pkcs11Options } from "../../src/keys/pkcs11/options.ts";
import { type PinSource, readPin } from "../../src/keys/pkcs11/pin.ts";
import type { ExternalSigner } from "../../src/keys/signer/signer.ts";
import { inputOf } from "../../src/testing/signer-tests.ts";
import { children } from "../support/children.ts";
import { refusal } from "../support/refusal.ts";
import { eventually, temporaryFolder } from "../support/service.ts";
import { simulatedClock } from "../support/simulated.ts";
import { createShim, createSoftHsm, skipWithoutPkcs11 } from "../support/softhsm.ts";

const issuer = "https://op.example";
const input = inputOf("header.claims");
const wrongPin = "91827364";

/** Creates a token behind the shim, with a key. */
async function setUp(t: TestContext) {
  const token = await createSoftHsm(t);
  token.pkcs11Tool("--keypairgen", "--key-type", "EC:prime256v1", "--label", "k", "--id", "01");
  const shim = createShim(token);
  const { modulePath } = shim;
  const uri = `${token.uri};object=k`;
  const logins = (): number => shim.log().filter((line) => line.startsWith("C_Login")).length;
  const open = (pin: Pkcs11Options["pin"] = { file: token.pinFile }) => pkcs11Backend({ modulePath, pin });
  return { token, shim, modulePath, uri, logins, open, backend: open() };
}
const unauthorized = "ERR_SIGNER_UNAUTHORIZED";

describe("logging in to a token", { skip: skipWithoutPkcs11("cc") }, () => {
  test("tries a wrong PIN only once", async (t) => {
    const { token, modulePath, uri, logins, open } = await setUp(t);
    writeFileSync(token.pinFile, wrongPin);
    const backend = pkcs11Backend({ modulePath, pin: { file: token.pinFile }, token: token.uri });
    const attempts = [
      () => backend.open(uri),
      () => backend.open(uri),
      () => backend.create({ issuer }),
      () => backend.destroy(uri),
    ];
    for (const attempt of attempts) {
      const error = await refusal(attempt, unauthorized);
      assert.match(
        error.message,
        /^PKCS#11: the token "[^"]+"( with .*)?, PIN from file .*\/pin: .*CKR_PIN_INCORRECT;/,
      );
      assert.ok(!inspect(error, { depth: 9, showHidden: true }).includes(wrongPin));
    }
    assert.equal(logins(), 1);
    // No other backend in this process tries it either, whatever the URI says about the token.
    const error = await refusal(() => open().open(`${uri};manufacturer=SoftHSM%20project`), unauthorized);
    assert.match(error.message, /may already have rejected this PIN/);
    assert.equal(logins(), 1);
    // After a refusal, this backend does not try the right PIN either, because it cannot know that the file has changed.
    writeFileSync(token.pinFile, token.pin);
    await refusal(() => backend.open(uri), unauthorized);
    assert.equal(logins(), 1);

    const signer = await open().open(uri);
    assert.equal((await signer.sign(input)).length, 64);
    await signer.close();
    assert.equal(logins(), 2);
  });

  test("tries a wrong PIN only once, even for concurrent calls", async (t) => {
    const { token, backend, uri, logins } = await setUp(t);
    writeFileSync(token.pinFile, wrongPin);
    await Promise.all(Array.from({ length: 10 }, () => refusal(() => backend.open(uri), unauthorized)));
    assert.equal(logins(), 1);
  });

  test("if the PIN changes while a signer is open, tries the new PIN only once, when the module restarts", async (t) => {
    const { token, shim, backend, uri, logins } = await setUp(t);
    const signer = await backend.open(uri);
    token.atEnd(() => signer.close());
    writeFileSync(token.pinFile, wrongPin);
    shim.control("C_Sign crash");
    await assert.rejects(signer.sign(input), { code: "ERR_SIGNER_UNAVAILABLE" });
    shim.control();
    const isRefused = (): Promise<boolean> =>
      signer.sign(input).then(
        () => assert.fail(),
        ({ code }: { code: string }) => code === unauthorized,
      );
    await eventually("the wrong PIN is refused", isRefused);
    for (let attempt = 0; attempt < 20; attempt += 1) assert.ok(await isRefused());
    assert.equal(logins(), 2);
  });

  // Flags of a token, PKCS#11 3.0 section 3.2, table 5.
  for (const [state, flags] of [["locked", 0x40000] as const, ["one attempt from being locked", 0x20000] as const]) {
    test(`does not try a PIN that is ${state}`, async (t) => {
      const { shim, backend, uri, logins } = await setUp(t);
      shim.control(`C_GetTokenInfo flags ${flags}`);
      await refusal(() => backend.open(uri), unauthorized);
      assert.equal(logins(), 0);
    });
  }

  for (const [failure, line] of [
    ["a module that crashes", "C_Login crash"],
    ["a module that hangs", "C_Login hang"],
    ["an unspecific error", "C_Login fail 0x6"],
  ] as const) {
    test(`does not try a PIN again after ${failure}`, async (t) => {
      const { token, shim, modulePath, uri, logins } = await setUp(t);
      shim.control(line);
      const clock = simulatedClock();
      const backend = pkcs11Backend({ modulePath, pin: { file: token.pinFile } }, clock);
      const open = (): Promise<unknown> => refusal(() => backend.open(uri), unauthorized);
      const first = open();
      await eventually("the token has the PIN", () => logins() === 1);
      if (line === "C_Login hang") await clock.advance(30_000);
      await first;
      for (let again = 0; again < 2; again += 1) await open();
      assert.equal(logins(), 1);
    });
  }

  test("a failed login on any connection is not blamed on a PIN that was accepted before", async (t) => {
    const { token, shim, backend, uri } = await setUp(t);
    const signer = await backend.open(uri);
    token.atEnd(() => signer.close());
    shim.control("C_Login fail 0x5");
    const other = `${uri};manufacturer=SoftHSM%20project`;
    const message = /PIN from file .*C_Login: CKR_GENERAL_ERROR; retry later$/;
    await assert.rejects(backend.open(other), { code: "ERR_SIGNER_UNAVAILABLE", message });
    shim.control("C_Sign crash");
    await assert.rejects(signer.sign(input));
    shim.control();
    const isOpen = async (): Promise<boolean> =>
      backend.open(other).then(
        (opened) => opened.close().then(() => true),
        () => false,
      );
    await eventually("the other connection is open", isOpen);
    const isSigned = async (): Promise<boolean> =>
      signer.sign(input).then(
        ({ length }) => length === 64,
        () => false,
      );
    await eventually("the first connection is open again", isSigned);
  });

  test("a PIN that may have been rejected is tried again after another connection has logged in with it", async (t) => {
    const { shim, backend, uri, logins } = await setUp(t);
    shim.control("C_Login hang");
    const uris = [uri, `${uri};manufacturer=SoftHSM%20project`];
    const opening = uris.map((uri) => backend.open(uri));
    const settled = Promise.allSettled(opening);
    await eventually("the token has both PINs", async () => logins() === 2);
    process.kill(children()[0] as number, "SIGKILL");
    const message = /the PIN may have been rejected, so jwksd will not try a PIN again until/;
    await assert.rejects(Promise.all(opening), { code: unauthorized, message });
    shim.control();
    for (const result of await settled) if (result.status === "fulfilled") await result.value.close();
    for (const uri of uris) await (await backend.open(uri)).close();
  });

  test("the PIN is read from a file, an environment variable, a command, or the URI's pin-source", async (t) => {
    const { token, uri, open } = await setUp(t);
    const variable = "TEST_TOKEN_PIN";
    t.after(() => Reflect.deleteProperty(process.env, variable));
    const sources: [pin: Pkcs11Options["pin"], uri: string][] = [
      [{ file: token.pinFile }, uri],
      [{ environment: variable }, uri],
      [{ command: ["cat", token.pinFile] }, uri],
      [undefined, `${uri}?pin-source=file:${token.pinFile}`],
      [{ environment: "NOT_SET" }, `${uri}?pin-source=${token.pinFile}`],
    ];
    for (const [pin, uri] of sources) {
      Reflect.deleteProperty(process.env, variable);
      if (inspect(pin).includes(variable)) process.env[variable] = token.pin;
      const signer = await open(pin ?? null).open(uri);
      token.atEnd(() => signer.close());
      const processes = childProcesses();
      assert.equal(processes.length, 1);
      for (const text of processes) assert.ok(!text.includes(token.pin), "the PIN is visible to other processes");
      assertHides(signer, token.pin);
      await signer.close();
    }
  });

  test("passes the named variables, but none of the current process's other secrets, to the process that runs the module", async (t) => {
    const { token, modulePath, uri } = await setUp(t);
    const secrets = { JWKSD_WRAPPING_KEYS: "secret-1", VAULT_TOKEN: "secret-2", VENDOR_TOKEN: "secret-3" };
    Object.assign(process.env, secrets, { VENDOR_CONFIG: "/etc/vendor" });
    t.after(() => {
      for (const name of [...Object.keys(secrets), "VENDOR_CONFIG"]) Reflect.deleteProperty(process.env, name);
    });
    const pin = { file: token.pinFile };
    const signer = await pkcs11Backend({ modulePath, pin, environment: ["VENDOR_CONFIG"] }).open(uri);
    const [text = "", ...more] = childProcesses();
    await signer.close();
    assert.equal(more.length, 0);
    for (const [name, value] of Object.entries(secrets)) assert.ok(!text.includes(name) && !text.includes(value), name);
    assert.ok(text.includes("VENDOR_CONFIG=/etc/vendor") && text.includes("SOFTHSM2_CONF="));
  });

  test("rejects a PIN file that contains anything but one PIN of acceptable length", async (t) => {
    const file = join(await temporaryFolder(t), "pin");
    const rows: [text: string, problem: string][] = [
      ["", "is empty"],
      ["\n", "is empty"],
      [`${wrongPin}\n${wrongPin}\n`, "has more than one line"],
      [`${wrongPin}\n\n`, "has more than one line"],
      [wrongPin.repeat(12_500), "has more than 1024 characters"],
    ];
    for (const [text, problem] of rows) {
      writeFileSync(file, text);
      await assert.rejects(readPin({ file }), {
        code: "ERR_OPTION_INVALID",
        message: `pin: file ${file} ${problem}; it must contain only the PIN, on one line`,
      });
    }
  });

  test("a source without a PIN causes an error that contains no secret", async (t) => {
    const { token, uri, logins, open } = await setUp(t);
    process.env["TEST_EMPTY_PIN"] = "";
    t.after(() => Reflect.deleteProperty(process.env, "TEST_EMPTY_PIN"));
    const missing = join(token.folder, "missing");
    const script = `process.stdout.write("${wrongPin}"); process.exit(1)`;
    const unreadable: PinSource[] = [
      { file: missing },
      { file: token.folder },
      { environment: "NOT_SET" },
      { environment: "TEST_EMPTY_PIN" },
      { command: [missing] },
      { command: [process.execPath, "-e", script] },
      { command: ["true"] },
    ];
    const malformed: unknown[] = [
      wrongPin,
      { value: wrongPin },
      { file: token.pinFile, environment: wrongPin },
      { command: `echo ${wrongPin}` },
      {},
    ];
    const attempts = [
      ...unreadable.map((source) => () => readPin(source)),
      () => open({ file: missing }).open(uri),
      ...malformed.map((pin) => () => open(pin as PinSource).open(uri)),
    ];
    for (const attempt of attempts) {
      const error = await refusal(attempt, "ERR_OPTION_INVALID");
      assert.ok(!inspect(error, { depth: 9, showHidden: true }).includes(wrongPin), inspect(error));
    }
    assert.equal(logins(), 0);
    const error = await refusal(() => open(null).open(uri), unauthorized);
    assert.match(error.message, /set it with the pin option .*pkcs11\.pin .* "pin-source" in the URI;/);
    assert.equal(logins(), 0);
  });
});

function assertHides(signer: ExternalSigner, secret: string): void {
  const text = inspect(signer, { depth: 9, showHidden: true }) + JSON.stringify(signer);
  assert.ok(!text.includes(secret));
}

/** Returns the arguments and environments of this process's children, as root and the user see them. */
function childProcesses(): string[] {
  return children().flatMap((pid) => {
    try {
      return [readFileSync(`/proc/${pid}/cmdline`, "latin1") + readFileSync(`/proc/${pid}/environ`, "latin1")];
    } catch {
      return [];
    }
  });
}
