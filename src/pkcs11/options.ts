import { isAbsolute } from "node:path";
import { checkBounds, checkTimeouts } from "../bounds.ts";
import { type Clock, systemClock } from "../clock.ts";
import { ConfigError } from "../errors.ts";
import { commonRules } from "../signer/backend-options.ts";
import { type PinSource, checkPinSource } from "./pin.ts";

/** Options of `pkcs11Backend`. */
export interface Pkcs11Options {
  /** Absolute path of the PKCS#11 module (a shared library). Without it, each URI has a `module-path`. */
  readonly modulePath?: string | undefined;
  /** Where the user PIN comes from. The `pin-source` of a URI comes before it; without both, the token must want no PIN. */
  readonly pin?: PinSource | undefined;
  /** The token for new keys, as a URI without a key: `pkcs11:token=jwksd`. */
  readonly token?: string | undefined;
  /** Signatures that the token makes at once, each in a session and on a thread of its own. Default: 16. */
  readonly sessions?: number | undefined;
  /** Time for one signature at the token, in milliseconds; a module that takes longer hangs, and is replaced. Default: 5000. */
  readonly timeoutMs?: number | undefined;
  /** The same for the start of the module with its login, and for making and destroying a key. Default: 30000. */
  readonly slowTimeoutMs?: number | undefined;
  readonly clock?: Clock | undefined;
}

const optionNames: readonly string[] = [
  "modulePath",
  "pin",
  "token",
  "sessions",
  "timeoutMs",
  "slowTimeoutMs",
  "clock",
] satisfies (keyof Pkcs11Options)[];
// Threads of Node's pool, less those for Node itself.
const maxSessions = 1_000;

type Optional = "modulePath" | "pin" | "token";
type CheckedOptions = Pick<Pkcs11Options, Optional> & {
  readonly [Name in Exclude<keyof Pkcs11Options, Optional>]-?: NonNullable<Pkcs11Options[Name]>;
};

/** Options may come from a file, so that their types are checked too. @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID` */
export function checkOptions(options: Pkcs11Options): CheckedOptions {
  if (typeof options !== "object" || options === null) throw invalid("options of PKCS#11 keys are an object");
  for (const name of Object.keys(options)) {
    if (optionNames.includes(name)) continue;
    const rule = `options of PKCS#11 keys are ${optionNames.join(", ")}`;
    throw new ConfigError("ERR_OPTION_UNKNOWN", `${rule}, not ${JSON.stringify(name)}`);
  }
  const { modulePath, pin, token, clock = systemClock } = options;
  const { sessions = 16, timeoutMs = 5_000, slowTimeoutMs = 30_000 } = options;
  if (!commonRules.clock[1](clock)) throw invalid(`clock must be ${commonRules.clock[0]}`);
  checkBounds({ sessions }, 1);
  checkTimeouts({ timeoutMs, slowTimeoutMs });
  if (!Number.isInteger(sessions) || sessions > maxSessions) {
    throw invalid(`sessions must be a whole number of at most ${maxSessions}`);
  }
  if (modulePath !== undefined && !(typeof modulePath === "string" && isAbsolute(modulePath))) {
    throw invalid("modulePath must be the absolute path of a PKCS#11 module");
  }
  if (pin !== undefined) checkPinSource(pin);
  if (token !== undefined && typeof token !== "string") {
    throw invalid('token must be a PKCS#11 URI, such as "pkcs11:token=jwksd"');
  }
  return { modulePath, pin, token, sessions, timeoutMs, slowTimeoutMs, clock };
}

const invalid = (rule: string): ConfigError => new ConfigError("ERR_OPTION_INVALID", rule);
