import { type Clock, systemClock } from "../clock.ts";
import { checkTimeouts } from "../bounds.ts";
import { ConfigError, JwksdError, SignerError } from "../errors.ts";

/** Deadlines of one key service. They stand above whatever its SDK does by itself: each of its retries counts. */
export interface RemoteOptions {
  /** Time for one signature, in milliseconds. Default: 5000. */
  readonly timeoutMs?: number | undefined;
  /** Time to open, make or destroy a key, in milliseconds: credentials may have to be found first. Default: 30000. */
  readonly slowTimeoutMs?: number | undefined;
  readonly clock?: Clock | undefined;
}

/** What an adapter learns from an error of its service. `detail` goes into messages: a name, code or status, never a text from outside. */
export interface Failure {
  readonly code: FailureCode;
  readonly detail: string;
}

type FailureCode =
  | "ERR_SIGNER_THROTTLED"
  | "ERR_SIGNER_UNAVAILABLE"
  | "ERR_SIGNER_UNAUTHORIZED"
  | "ERR_SIGNER_KEY_STATE"
  | "ERR_SIGNER_BAD_SIGNATURE";

const advice: Readonly<Record<FailureCode, string>> = {
  ERR_SIGNER_THROTTLED: "the key service asks to slow down; try again later",
  ERR_SIGNER_UNAVAILABLE: "the key service cannot be reached or failed; try again later",
  ERR_SIGNER_UNAUTHORIZED: "the key service refuses these credentials; correct the credentials or the policy",
  ERR_SIGNER_KEY_STATE: "the key is disabled, deleted or not there",
  ERR_SIGNER_BAD_SIGNATURE: "the key service answered with something else than was asked for",
};

/** An error of one kind, that names the key and what the service said in a word. */
export function failure(name: string, { code, detail }: Failure): SignerError {
  return new SignerError(code, `${name}: ${advice[code]} (${detail})`);
}

/** An option that holds a function or an object with functions. */
export interface CodeOption {
  isValid(this: void, value: unknown): boolean;
  /** What it must be, and what a file does without it. The value is never repeated: it may be a secret. */
  readonly rule: string;
}

export const isFunction = (value: unknown): boolean => typeof value === "function";

/** Whether a value is an object that has a method. */
export function hasMethod(value: unknown, name: string): boolean {
  return typeof value === "object" && value !== null && isFunction((value as Record<string, unknown>)[name]);
}

export const clockOption: CodeOption = {
  isValid: (value) => hasMethod(value, "now") && hasMethod(value, "setTimer"),
  rule: "a clock with now() and setTimer(), which only code can give; leave it out in a file",
};

/**
 * Refuses names that no option has and values of the wrong type: options may come from a file, which has no place for a secret.
 *
 * @param texts names of the options that hold a text
 * @param numbers names of the options that hold a number, which the caller checks
 * @param code options that only code can give, by name: whether a value is one, and what to do where it is not
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`
 */
export function checkOptions(
  options: object,
  texts: readonly string[],
  numbers: readonly string[] = [],
  code: Readonly<Record<string, CodeOption>> = {},
): void {
  const ofCode = new Map(Object.entries({ ...code, clock: clockOption }));
  const known = new Set([...texts, ...numbers, "timeoutMs", "slowTimeoutMs", ...ofCode.keys()]);
  for (const [name, value] of Object.entries(options) as [string, unknown][]) {
    if (!known.has(name)) {
      const names = [...known].filter((known) => known !== "clock").join(", ");
      throw new ConfigError("ERR_OPTION_UNKNOWN", `a signer has no option ${JSON.stringify(name)}; it has ${names}`);
    }
    if (value !== undefined && texts.includes(name) && (typeof value !== "string" || value === "")) {
      throw new ConfigError("ERR_OPTION_INVALID", `the option ${name} of a signer must be a text`);
    }
    const option = ofCode.get(name);
    if (value !== undefined && option !== undefined && !option.isValid(value)) {
      throw new ConfigError("ERR_OPTION_INVALID", `the option ${name} of a signer must be ${option.rule}`);
    }
  }
}

/** Refuses a value that is not one of a few. @throws ConfigError `ERR_OPTION_INVALID` */
export function checkChoice(name: string, value: unknown, choices: readonly string[]): void {
  if (!choices.includes(value as string)) {
    throw new ConfigError("ERR_OPTION_INVALID", `the option ${name} of a signer must be ${choices.join(" or ")}`);
  }
}

/** A URL of an option. @throws ConfigError `ERR_OPTION_INVALID` */
export function checkUrl(name: string, value: string | undefined): void {
  if (value !== undefined && !(URL.canParse(value) && /^https?:$/.test(new URL(value).protocol))) {
    throw new ConfigError("ERR_OPTION_INVALID", `the option ${name} of a signer must be an https URL`);
  }
}

/**
 * An option without which no key is made.
 *
 * @param member of the signers file, for those who run the service
 */
export function needsOption(where: string, option: string, member: string, example: string): ConfigError {
  const name = `the option ${option} (${member}.${option} of the signers file)`;
  return new ConfigError("ERR_OPTION_INVALID", `making a key in ${where} needs ${name}, such as ${example}`);
}

/** Calls a key service within a deadline. */
export interface Remote {
  /**
   * Runs one operation, all retries of the SDK included. Errors of the service are mapped by `kindOf`, and not kept as `cause`:
   * they hold requests with their credentials.
   *
   * @throws SignerError `ERR_SIGNER_TIMEOUT`, `ERR_SIGNER_ABORTED`, and those of `kindOf`
   */
  call<T>(
    name: string,
    kind: "sign" | "slow",
    signal: AbortSignal | undefined,
    work: (signal: AbortSignal) => Promise<T>,
  ): Promise<T>;
  /** Waits, to look again whether something has happened. */
  pause(signal: AbortSignal): Promise<void>;
}

const pauseMs = 250;

/** @throws ConfigError `ERR_OPTION_INVALID` */
export function remote(options: RemoteOptions, kindOf: (error: unknown) => Failure): Remote {
  const { timeoutMs = 5000, slowTimeoutMs = 30_000, clock = systemClock } = options;
  checkTimeouts({ timeoutMs, slowTimeoutMs });

  return {
    async call(name, kind, signal, work) {
      const limitMs = kind === "sign" ? timeoutMs : slowTimeoutMs;
      const operation = new AbortController();
      const abort = (): void =>
        operation.abort(
          signal?.reason instanceof SignerError
            ? signal.reason
            : new SignerError("ERR_SIGNER_ABORTED", `${name}: the caller aborted the operation`),
        );
      const ended = new Promise<never>((_, reject) => {
        operation.signal.addEventListener("abort", () => reject(operation.signal.reason as Error), { once: true });
      });
      const cancelTimer = clock.setTimer(
        () =>
          operation.abort(
            new SignerError(
              "ERR_SIGNER_TIMEOUT",
              `${name}: the key service did not answer within ${limitMs} ms; try again later`,
            ),
          ),
        limitMs,
      );
      if (signal?.aborted === true) abort();
      else signal?.addEventListener("abort", abort, { once: true });
      try {
        // Raced, because an SDK may not look at the signal at every step, credentials being one.
        return await (operation.signal.aborted ? ended : Promise.race([work(operation.signal), ended]));
      } catch (error) {
        if (error instanceof JwksdError) throw error;
        if (operation.signal.aborted) throw operation.signal.reason;
        throw failure(name, kindOf(error));
      } finally {
        cancelTimer();
        signal?.removeEventListener("abort", abort);
        ended.catch(() => {});
      }
    },

    pause: (signal) =>
      new Promise((resolve, reject) => {
        const leave = (): void => {
          cancelTimer();
          reject(signal.reason as Error);
        };
        const cancelTimer = clock.setTimer(() => {
          signal.removeEventListener("abort", leave);
          resolve();
        }, pauseMs);
        signal.addEventListener("abort", leave, { once: true });
      }),
  };
}

/**
 * Loads the SDK of a key service when it is needed.
 *
 * @throws ConfigError `ERR_PACKAGE_MISSING`
 */
export async function loadPackage<T>(packageName: string, load: () => Promise<T>): Promise<T> {
  try {
    return await load();
  } catch (error) {
    // What a package that is there lacks itself is not for this message.
    const { code, message } = error as NodeJS.ErrnoException;
    if (code !== "ERR_MODULE_NOT_FOUND" || !message.includes(`'${packageName}'`)) throw error;
    throw new ConfigError(
      "ERR_PACKAGE_MISSING",
      `the package ${packageName} is needed and not installed; install it with: npm install ${packageName}`,
    );
  }
}

/** The status or name of an error for a message, if it is nothing but a word. */
export function word(value: unknown): string | undefined {
  if (typeof value === "number") return String(value);
  return typeof value === "string" && /^[\w.:-]{1,64}$/.test(value) ? value : undefined;
}

/** What an HTTP status means where the service has said nothing better. @see RFC 9110 section 15 */
export function kindOfStatus(status: number): Failure["code"] {
  if (status === 401 || status === 403) return "ERR_SIGNER_UNAUTHORIZED";
  if (status === 429) return "ERR_SIGNER_THROTTLED";
  return status === 400 || status === 404 || status === 409 || status === 410
    ? "ERR_SIGNER_KEY_STATE"
    : "ERR_SIGNER_UNAVAILABLE";
}
