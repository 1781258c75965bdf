import { isAbsolute } from "node:path";
import type { Clock } from "../clock.ts";
import { type Rule, type Rules, text, textThat, texts, wholeNumber } from "../options.ts";
import { backendRules } from "../signer/backend-options.ts";
import { type PinSource, pinRule } from "./pin.ts";

/** Options of `pkcs11Backend`. */
export interface Pkcs11Options {
  /** Absolute path of the PKCS#11 module (a shared library). Without it, each URI has a `module-path`. */
  readonly modulePath?: string | undefined;
  /** Where the user PIN comes from. The `pin-source` of a URI comes before it; without both, the token must want no PIN. */
  readonly pin?: PinSource | undefined;
  /** The token for new keys, as a URI without a key: `pkcs11:token=jwksd`. */
  readonly token?: string | undefined;
  /**
   * Names of environment variables that the module needs. It gets those that most programs need (`PATH`, `HOME`, `LANG` and so on) and
   * those of SoftHSM, TPM, p11-kit, YubiHSM, OpenSC, PC/SC, Luna, nShield, Utimaco and NetHSM; of all others, only these.
   */
  readonly environment?: readonly string[] | undefined;
  /** Signatures that the token makes at once, each in a session and on a thread of its own. Default: 16. */
  readonly sessions?: number | undefined;
  /** Time for one signature at the token, in milliseconds; a module that takes longer hangs, and is replaced. Default: 5000. */
  readonly timeoutMs?: number | undefined;
  /** The same for the start of the module with its login, and for making and destroying a key. Default: 30000. */
  readonly slowTimeoutMs?: number | undefined;
  readonly clock?: Clock | undefined;
}

/** Variables of jwksd itself are no module's. */
const variables: Rule<readonly string[]> = {
  must: "an array of the names of environment variables, none of which begins with JWKSD_",
  holds: (value): value is string[] =>
    texts.holds(value) && value.every((name) => /^[a-z_]\w*$/i.test(name) && !/^JWKSD_/i.test(name)),
};

export const pkcs11Rules: Rules<Pkcs11Options> = {
  modulePath: textThat("the absolute path of a PKCS#11 module", isAbsolute),
  pin: pinRule,
  token: text,
  environment: variables,
  // Threads of Node's pool, less those for Node itself.
  sessions: wholeNumber(1, 1_000),
  ...backendRules,
};
