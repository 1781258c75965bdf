import { execFileSync } from "node:child_process";
import { copyFileSync, existsSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type * as Pkcs11js from "pkcs11js";
import type { Handle, PKCS11 } from "pkcs11js";
import { part, skipWithout, skipped } from "./parts.ts";

type Scope = { after(fn: () => Promise<void>): void };

/** A new SoftHSM token in its own folder. */
export interface SoftHsm {
  readonly modulePath: string;
  readonly label: string;
  /** URI of the token. */
  readonly uri: string;
  readonly pin: string;
  /** Path of a file that contains the PIN. */
  readonly pinFile: string;
  readonly folder: string;
  /** Folder of the token; a test may move it away. */
  readonly tokenFolder: string;
  /** Runs OpenSC's pkcs11-tool, logged in as the user, and returns its output. */
  pkcs11Tool(this: void, ...args: string[]): string;
  /** Runs a function in this process with a read-write session, logged in as the user. */
  inSession<T>(this: void, task: (module: PKCS11, session: Handle) => T): T;
  /** Registers a function that runs before the token is removed, the last one first. */
  atEnd(this: void, end: () => unknown): void;
}

/** A module that forwards calls to SoftHSM and misbehaves on request. */
export interface Shim {
  readonly modulePath: string;
  /** Replaces the lines of the control file; see pkcs11-shim/shim.c. */
  control(this: void, ...lines: string[]): void;
  /** Returns the module's log so far: a line for each login, start and end. */
  log(this: void): readonly string[];
}

const libraries = [
  "/usr/lib/softhsm",
  "/usr/lib/x86_64-linux-gnu/softhsm",
  "/usr/lib64/pkcs11",
  "/usr/local/lib/softhsm",
];
const shimSource = fileURLToPath(new URL("pkcs11-shim/shim.c", import.meta.url));
const root = fileURLToPath(new URL("../../", import.meta.url));

/** Returns the `skip` option of tests with a PKCS#11 module: why they are skipped, or `false`. If `CI` is set, nothing is skipped. */
export function skipWithoutPkcs11(...programs: string[]): string | false {
  const missing = skipWithout("softhsm2-util", "pkcs11-tool", ...programs);
  if (missing !== false || process.env["CI"]) return missing;
  try {
    loadPkcs11js();
    return false;
  } catch {
    return skipped("pkcs11js is not compiled; install g++, make and python3, then: npm rebuild pkcs11js");
  }
}

/** Creates a token; this process's SOFTHSM2_CONF names its configuration until the test ends. */
export async function createSoftHsm(t: Scope, label = "jwksd-test", pin = "19283746"): Promise<SoftHsm> {
  const folder = await mkdtemp(join(tmpdir(), "jwksd-softhsm-"));
  const tokenFolder = join(folder, "tokens");
  await mkdir(tokenFolder);
  const configuration = join(folder, "softhsm2.conf");
  writeFileSync(
    configuration,
    `directories.tokendir = ${tokenFolder}\nobjectstore.backend = file\nlog.level = ERROR\n`,
  );
  const pinFile = join(folder, "pin");
  writeFileSync(pinFile, `${pin}\n`, { mode: 0o600 });
  const before = process.env["SOFTHSM2_CONF"];
  process.env["SOFTHSM2_CONF"] = configuration;
  const ends: (() => unknown)[] = [];
  t.after(async () => {
    for (const end of ends) await end();
    if (before === undefined) delete process.env["SOFTHSM2_CONF"];
    else process.env["SOFTHSM2_CONF"] = before;
    await rm(folder, { recursive: true, force: true });
  });
  const modulePath = libraries.map((path) => join(path, "libsofthsm2.so")).find((path) => existsSync(path));
  if (modulePath === undefined) throw new Error("libsofthsm2.so was not found");
  run(part("softhsm2-util"), "--init-token", "--free", "--label", label, "--pin", pin, "--so-pin", "56473829");
  return {
    modulePath,
    label,
    uri: `pkcs11:token=${label}`,
    pin,
    pinFile,
    folder,
    tokenFolder,
    inSession: (task) => inSession(modulePath, pin, task),
    atEnd: (end) => ends.unshift(end),
    pkcs11Tool: (...args) =>
      run(part("pkcs11-tool"), "--module", modulePath, "--token-label", label, "--login", "--pin", pin, ...args),
  };
}

/** Compiles the module of {@link createShim} once in this process. */
let compiled: string | undefined;

function compiledShim(): string {
  if (compiled !== undefined) return compiled;
  const folder = mkdtempSync(join(tmpdir(), "jwksd-shim-"));
  process.once("exit", () => rmSync(folder, { recursive: true, force: true }));
  compiled = join(folder, "shim.so");
  const headers = join(root, "node_modules/pkcs11js/includes/pkcs11");
  const flags = ["-shared", "-fPIC", "-O2", "-Wall", "-Werror", `-I${headers}`];
  run(part("cc"), ...flags, "-o", compiled, shimSource, "-ldl", "-pthread");
  return compiled;
}

/** Sets up the shim in front of a token. */
export function createShim({ folder, modulePath }: Pick<SoftHsm, "folder" | "modulePath">): Shim {
  // The shim finds its other files in its own folder. A link to the module would lead out of the root of QEMU.
  const shim = join(folder, "shim.so");
  copyFileSync(compiledShim(), shim);
  copyFileSync(modulePath, join(folder, "shim.module"));
  const control = join(folder, "shim.control");
  const log = join(folder, "shim.log");
  return {
    modulePath: shim,
    control(...lines) {
      // The file must appear complete, because the module may read it at any moment.
      writeFileSync(`${control}.new`, lines.join("\n"));
      renameSync(`${control}.new`, control);
    },
    log: () => (existsSync(log) ? readFileSync(log, "utf8").trim().split("\n") : []),
  };
}

/** Loads pkcs11js, compiled on this machine. */
export const loadPkcs11js = (): typeof Pkcs11js => createRequire(import.meta.url)("pkcs11js") as typeof Pkcs11js;

function inSession<T>(modulePath: string, pin: string, task: (module: PKCS11, session: Handle) => T): T {
  const { PKCS11, CKF_RW_SESSION, CKF_SERIAL_SESSION, CKU_USER } = loadPkcs11js();
  const module = new PKCS11(modulePath);
  module.C_Initialize();
  try {
    const [slot] = module.C_GetSlotList(true);
    const session = module.C_OpenSession(slot as Handle, CKF_SERIAL_SESSION | CKF_RW_SESSION);
    module.C_Login(session, CKU_USER, pin);
    return task(module, session);
  } finally {
    module.C_Finalize();
  }
}

function run(program: string, ...args: string[]): string {
  return execFileSync(program, args, { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
}
