import { type ChildProcess, fork } from "node:child_process";
import { childEnvironment } from "./child-environment.ts";

const childModule = new URL(`./child${import.meta.url.endsWith(".ts") ? ".ts" : ".js"}`, import.meta.url);

/**
 * Variables that specify the configuration, device and log for common modules: SoftHSM, TPMs, p11-kit, YubiHSM, smart
 * cards (OpenSC, PC/SC), Thales Luna, Entrust nShield, Utimaco and NetHSM.
 */
const moduleVariables = [
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
 * Starts the process that loads the module. That process exits when this one does.
 *
 * @param variables names of additional environment variables that the module needs
 */
export function forkChild(sessions: number, variables: readonly string[]): ChildProcess {
  return fork(childModule, {
    serialization: "advanced",
    execArgv: [],
    env: {
      // NODE_OPTIONS and LD_PRELOAD are excluded, because they could load code that reads the PIN.
      ...childEnvironment(process.env, [...moduleVariables, ...variables]),
      // Each signature blocks a thread, and Node itself needs two more.
      UV_THREADPOOL_SIZE: String(sessions + 2),
    },
    // The thread that watches the parent reads standard input. A module's output must not become part of jwksd's.
    stdio: ["pipe", "ignore", "inherit", "ipc"],
  });
}
