import { isAbsolute } from "node:path";
import {
  type Optional,
  type Rule,
  type Rules,
  nonEmptyString,
  stringThat,
  strings,
  wholeNumber,
} from "../../base/options.ts";
import { backendRules } from "../signer/backend-options.ts";
import { type PinSource, pinRule } from "./pin.ts";

/** Options for keys in PKCS#11 tokens (HSMs, TPMs, smart cards). Requires the `pkcs11js` package. */
export interface Pkcs11Options {
  /** Absolute path of the PKCS#11 module (a shared library). Default: the `module-path` of each URI. */
  readonly modulePath?: Optional<string>;
  /** Source of the user PIN. A URI's `pin-source` takes precedence. Default: none, for tokens without a PIN. */
  readonly pin?: Optional<PinSource>;
  /**
   * Token for new keys, as a URI without a key: `pkcs11:token=jwksd`. Only `create` needs it.
   * Default: none.
   */
  readonly token?: Optional<string>;
  /**
   * Names of environment variables that the module needs. The module also receives common variables (`PATH`, `HOME`,
   * `LANG` and so on) and the variables for SoftHSM, TPM, p11-kit, YubiHSM, OpenSC, PC/SC, Luna, nShield, Utimaco and
   * NetHSM, but no others. Default: none.
   */
  readonly environment?: Optional<readonly string[]>;
  /** Number of concurrent signatures, each with its own session and thread. Default: 16. */
  readonly sessions?: Optional<number>;
  /**
   * Time limit for one signature, in milliseconds. If the module takes longer, jwksd assumes that the module has hung
   * and replaces its process. Default: 5000.
   */
  readonly timeoutMs?: Optional<number>;
}

/** Rule for the variables' names. Rejects jwksd's own variables, because they may contain wrapping keys. */
const variables: Rule<readonly string[]> = {
  must: "an array of environment variable names that do not begin with JWKSD_",
  types: ["array"],
  holds: (value): value is string[] =>
    strings.holds(value) && value.every((name) => /^[a-z_]\w*$/i.test(name) && !/^JWKSD_/i.test(name)),
};

export const pkcs11Rules: Rules<Pkcs11Options> = {
  modulePath: stringThat("the absolute path of a PKCS#11 module", isAbsolute),
  pin: pinRule,
  token: nonEmptyString,
  environment: variables,
  // Node's thread pool has at most 1,024 threads.
  sessions: wholeNumber(1, 1_000),
  ...backendRules,
};
