import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, writeFileSync } from "node:fs";
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { part } from "../support/parts.ts";
import { eventually, freePort, isListening } from "../support/service.ts";

type Scope = { after(fn: () => Promise<void>): void };

/** A tpm2-pkcs11 token in a software TPM. */
export interface TpmToken {
  readonly modulePath: string;
  readonly uri: string;
  readonly pin: string;
  readonly pinFile: string;
  readonly folder: string;
}

const libraries = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];
const label = "tpm-test";
const soPin = "56473829";
const pin = "19283746";
// Ports next to a closed connection's port are often in use for a while.
const maxAttempts = 30;

/** Starts a TPM and creates a token in it; this process's environment variables point to it until the test ends. */
export async function createTpmToken(t: Scope): Promise<TpmToken> {
  const modulePath = libraries.map((path) => join(path, "libtpm2_pkcs11.so.1")).find((path) => existsSync(path));
  if (modulePath === undefined) throw new Error("libtpm2_pkcs11.so.1 was not found");
  const folder = await mkdtemp(join(tmpdir(), "jwksd-swtpm-"));
  t.after(() => rm(folder, { recursive: true, force: true }));
  for (const name of ["state", "store"]) await mkdir(join(folder, name));
  const port = await startTpm(t, folder);
  const settings = {
    TPM2_PKCS11_STORE: join(folder, "store"),
    TPM2_PKCS11_TCTI: `swtpm:host=127.0.0.1,port=${port}`,
    // The TPM's library logs warnings in normal operation.
    TSS2_LOG: "all+none",
  };
  Object.assign(process.env, settings);
  t.after(async () => {
    for (const name of Object.keys(settings)) Reflect.deleteProperty(process.env, name);
  });
  // Without a resource manager, only the module's own commands clean up; tpm2_ptool runs out of TPM memory.
  const tool = (...args: string[]): void =>
    void execFileSync(part("pkcs11-tool"), ["--module", modulePath, ...args], { stdio: ["ignore", "pipe", "pipe"] });
  tool("--init-token", "--slot", "1", "--label", label, "--so-pin", soPin);
  tool("--init-pin", "--token-label", label, "--so-pin", soPin, "--pin", pin);
  const pinFile = join(folder, "pin");
  writeFileSync(pinFile, pin, { mode: 0o600 });
  return { modulePath, uri: `pkcs11:token=${label}`, pin, pinFile, folder };
}

/** Starts a TPM. @returns its port; the next one, which another program may use, is the control port */
async function startTpm(t: Scope, folder: string): Promise<number> {
  for (let attempt = 1; ; attempt += 1) {
    const port = await freePort();
    const state = `dir=${join(folder, "state")}`;
    const server = `type=tcp,port=${port},bindaddr=127.0.0.1`;
    const control = `type=tcp,port=${port + 1},bindaddr=127.0.0.1`;
    const flags = ["--tpm2", "--tpmstate", state, "--server", server, "--ctrl", control];
    const tpm = spawn(part("swtpm"), ["socket", ...flags, "--flags", "not-need-init,startup-clear"], {
      stdio: ["ignore", "ignore", attempt < maxAttempts ? "ignore" : "inherit"],
    });
    const hasEnded = (): boolean => tpm.exitCode !== null || tpm.signalCode !== null;
    await eventually("the TPM listens", async () => hasEnded() || (await isListening(port + 1)));
    if (!hasEnded()) {
      t.after(async () => {
        if (!hasEnded() && tpm.kill("SIGKILL")) await once(tpm, "exit");
      });
      return port;
    }
    if (attempt === maxAttempts) throw new Error("swtpm does not start");
  }
}
