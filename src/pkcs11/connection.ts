import { createHmac, randomBytes } from "node:crypto";
import { CallFailure, signerErrorOf, unauthorized } from "./call-failure.ts";
import type { Failure, TokenDescription, TokenSelector } from "./messages.ts";
import { tokenName } from "./names.ts";
import { type PinSource, describePin, readPin } from "./pin.ts";
import { type ProcessSettings, TokenProcess } from "./token-process.ts";

/** What one connection is made to. */
export interface ConnectionTarget {
  readonly modulePath: string;
  readonly token: TokenSelector;
  readonly pin: PinSource | undefined;
  readonly sessions: number;
}

// What this process knows of the PINs of tokens, whichever connection has learned it: a wrong one is not tried again, and one that was
// right is not doubted because a login failed. Nobody can tell from what is kept here which PIN it was.
const knownPins = new Map<string, "right" | "refused">();
const processKey = randomBytes(32);
const firstDelayMs = 100;
const lastDelayMs = 5_000;

/**
 * Keeps a process for one token while anybody uses it, and replaces one that ended: at once the first time, then after 100 ms, 200 ms
 * and so on up to 5 s, until the token has signed again. In between, calls fail with a retryable error.
 *
 * A PIN that was refused is never tried again: from then on everything fails with `ERR_SIGNER_UNAUTHORIZED`.
 */
export class Connection {
  readonly #target: ConnectionTarget;
  readonly #settings: ProcessSettings;
  #users = 0;
  #process: TokenProcess | undefined;
  #starting: Promise<TokenProcess> | undefined;
  #cancelRetry: (() => void) | undefined;
  #failure: Failure | undefined;
  #failedStarts = 0;
  #wasLoggedIn = false;
  #refusal: Failure | undefined;
  #tried: string | undefined;
  #stopping: Promise<void> | undefined;

  constructor(target: ConnectionTarget, settings: ProcessSettings) {
    this.#target = target;
    this.#settings = settings;
  }

  /** A process that takes calls, where there is one right now. */
  get current(): TokenProcess | undefined {
    return this.#process?.isUsable === true ? this.#process : undefined;
  }

  /** Keeps the token open until {@link release}. */
  acquire(): void {
    this.#users += 1;
  }

  /** The last one ends the process, when everything under way is finished. */
  async release(): Promise<void> {
    this.#users -= 1;
    if (this.#users > 0) return;
    this.#cancelRetry?.();
    this.#cancelRetry = undefined;
    await this.#starting?.catch(() => {});
    // Somebody may have come meanwhile.
    if (this.#users > 0) return;
    this.#stopping ??= this.#process?.stop().finally(() => (this.#stopping = undefined));
    await this.#stopping;
  }

  /**
   * The process of the token; while one starts, that is waited for.
   *
   * @throws SignerError `ERR_SIGNER_UNAVAILABLE`, `ERR_SIGNER_UNAUTHORIZED`
   * @throws ConfigError `ERR_PACKAGE_MISSING`, `ERR_OPTION_INVALID`, `ERR_SIGNER_URI`
   */
  async process(): Promise<TokenProcess> {
    await this.#stopping;
    if (this.#refusal !== undefined && !this.#wasRight()) throw unauthorized(this.#refusal);
    if (this.current !== undefined) return this.current;
    if (this.#starting !== undefined) return this.#starting;
    // One that is ending, or one that could not be started: a further one comes by itself.
    if (this.#process !== undefined || this.#cancelRetry !== undefined) {
      throw signerErrorOf(new CallFailure(passing(this.#failure ?? ending)));
    }
    return this.#startOnce();
  }

  #startOnce(): Promise<TokenProcess> {
    const starting = this.#start().finally(() => (this.#starting = undefined));
    this.#starting = starting;
    return starting;
  }

  async #start(): Promise<TokenProcess> {
    const { modulePath, token, sessions } = this.#target;
    this.#tried = undefined;
    this.#refusal = undefined;
    try {
      const start = { kind: "start", modulePath, token, sessions } as const;
      const process = await TokenProcess.start(start, (token) => this.#pinFor(token), this.#settings);
      this.#wasLoggedIn = true;
      if (this.#tried !== undefined) knownPins.set(this.#tried, "right");
      this.#process = process;
      void process.ended.then((failure) => this.#onEnd(process, failure));
      return process;
    } catch (thrown) {
      const error = this.#withNames(thrown);
      this.#failedStarts += 1;
      this.#latch(error);
      const failure = error instanceof CallFailure ? error.failure : unreadablePin;
      this.#retryLater(failure);
      // The first start shows whether the configuration is right. What is wrong after that may pass.
      const mayPass = this.#refusal === undefined && (this.#wasLoggedIn || failure.reason === "login");
      throw signerErrorOf(mayPass ? new CallFailure(passing(failure)) : error);
    }
  }

  async #pinFor(token: TokenDescription): Promise<string | undefined> {
    if (this.#target.pin === undefined) return undefined;
    const pin = await readPin(this.#target.pin);
    this.#tried = createHmac("sha256", processKey)
      .update(JSON.stringify([this.#target.modulePath, token, pin]))
      .digest("hex");
    if (knownPins.get(this.#tried) !== "refused") return pin;
    throw new CallFailure({ reason: "pin", message: "this PIN was refused before, or may have been", lost: true });
  }

  /** What is wrong with a login is mended at the token or where the PIN comes from. */
  #withNames(error: unknown): unknown {
    if (!(error instanceof CallFailure)) return error;
    const { failure, timedOut } = error;
    if (failure.reason !== "pin" && failure.reason !== "login") return error;
    const { token, pin } = this.#target;
    const source = pin === undefined ? "" : `, PIN from ${describePin(pin)}`;
    return new CallFailure({ ...failure, message: `${tokenName(token)}${source}: ${failure.message}` }, timedOut);
  }

  /** Whether any connection has logged in with the PIN that was tried last. */
  #wasRight(): boolean {
    return this.#tried !== undefined && knownPins.get(this.#tried) === "right";
  }

  /** Where it is not known what became of the PIN, it counts as refused, unless it was right before. */
  #latch(error: unknown): void {
    if (!(error instanceof CallFailure)) return;
    const { reason } = error.failure;
    if (reason !== "pin" && (reason !== "login" || this.#wasRight())) return;
    this.#refusal = error.failure;
    if (this.#tried !== undefined) knownPins.set(this.#tried, "refused");
  }

  #onEnd(process: TokenProcess, failure: Failure | undefined): void {
    this.#process = undefined;
    if (failure === undefined) return;
    this.#failedStarts = process.hasSigned ? 0 : this.#failedStarts + 1;
    this.#retryLater(failure);
  }

  #retryLater(failure: Failure): void {
    this.#failure = failure;
    if (this.#users === 0 || this.#refusal !== undefined) return;
    const delayMs = this.#failedStarts === 0 ? 0 : Math.min(firstDelayMs * 2 ** (this.#failedStarts - 1), lastDelayMs);
    this.#cancelRetry = this.#settings.clock.setTimer(() => {
      this.#cancelRetry = undefined;
      // What went wrong is told to whoever calls next, and it is tried again.
      this.#startOnce().catch(() => {});
    }, delayMs);
  }
}

const ending: Failure = { reason: "unavailable", message: "the token is being opened again", lost: true };
const unreadablePin: Failure = { reason: "unavailable", message: "the PIN cannot be read", lost: true };

const passing = ({ message }: Failure): Failure => ({ reason: "unavailable", message, lost: true });
