import { type ChildProcess, fork } from "node:child_process";
import { childEnvironment } from "../child-environment.ts";

const childModule = new URL(`./child${import.meta.url.endsWith(".ts") ? ".ts" : ".js"}`, import.meta.url);

/**
 * By which modules in use find their configuration, their device and their log: SoftHSM, TPMs, p11-kit, YubiHSM, smart cards (OpenSC,
 * PC/SC), Thales Luna, Entrust nShield, Utimaco, NetHSM.
 */
const ofModules = [
  "SOFTHSM2_CONF",
  "TPM2_PKCS11_*",
  "TSS2_*",
  "P11_KIT_*",
  "YUBIHSM_PKCS11_*",
  "OPENSC_*",
  "PCSCLITE_*",
  "ChrystokiConfigurationPath",
  "NFAST_*",
  "CKNFAST_*",
  "CS_PKCS11_*",
  "P11NETHSM_CONFIG_FILE",
];

/**
 * Starts the process that loads the module. It ends when this process does.
 *
 * @param variables names of the environment variables that the module needs besides
 */
export function forkChild(sessions: number, variables: readonly string[]): ChildProcess {
  return fork(childModule, {
    serialization: "advanced",
    execArgv: [],
    env: {
      // Not NODE_OPTIONS and LD_PRELOAD, which load more code beside the PIN.
      ...childEnvironment(process.env, [...ofModules, ...variables]),
      // Each signature holds a thread while the module makes it; the rest is for what Node itself does.
      UV_THREADPOOL_SIZE: String(sessions + 2),
    },
    // Its standard input is how it knows that this process is alive. What a module prints is no output of this program.
    stdio: ["pipe", "ignore", "inherit", "ipc"],
  });
}
