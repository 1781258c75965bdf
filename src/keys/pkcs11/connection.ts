import { TokenFailure } from "./failure.ts";
import type { TokenRequest } from "./messages.ts";
import { type PinSource, type PinTries, createPinTries, describePin } from "./pin.ts";
import { type ProcessSettings, TokenProcess } from "./token-process.ts";
import { nameOfToken } from "./uri.ts";

/** A token, its module, and the source of its PIN. */
export interface ConnectionTarget extends TokenRequest {
  readonly pin: PinSource | undefined;
}

const firstDelayMs = 100;
const lastDelayMs = 5_000;

/**
 * Keeps a process for one token while signers use it. Replaces a process that ended: at once the first time, then after 100 ms, 200 ms
 * and so on up to 5 s, until the token has signed again. Meanwhile, calls fail with a retryable error.
 */
export class Connection {
  readonly #target: ConnectionTarget;
  readonly #settings: ProcessSettings;
  readonly #pins: PinTries;
  #users = 0;
  #process: TokenProcess | undefined;
  #starting: Promise<TokenProcess> | undefined;
  #stopping: Promise<void> | undefined;
  #cancelRetry: (() => void) | undefined;
  /** Why there is no usable process. */
  #failure = new TokenFailure("unavailable", "the token is being opened again", true);
  #failedStarts = 0;
  #wasOpen = false;

  constructor(target: ConnectionTarget, settings: ProcessSettings) {
    this.#target = target;
    this.#settings = settings;
    this.#pins = createPinTries(target.pin, target.modulePath);
  }

  /** The process, if it takes calls now. */
  get current(): TokenProcess | undefined {
    return this.#process?.isUsable === true ? this.#process : undefined;
  }

  /** Keeps the token open until {@link release}. */
  acquire(): void {
    this.#users += 1;
  }

  /** The last release ends the process, after the calls under way. */
  async release(): Promise<void> {
    this.#users -= 1;
    if (this.#users > 0) return;
    this.#cancelRetry?.();
    this.#cancelRetry = undefined;
    await this.#starting?.catch(() => {});
    // A new user may have come meanwhile.
    if (this.#users > 0) return;
    this.#stopping ??= this.#process?.stop().finally(() => (this.#stopping = undefined));
    await this.#stopping;
  }

  /** The process of the token, after its start. Rejects with {@link TokenFailure}, or as `readPin` does. */
  async process(): Promise<TokenProcess> {
    await this.#stopping;
    if (this.#pins.refusal !== undefined) throw this.#pins.refusal;
    if (this.current !== undefined) return this.current;
    if (this.#starting !== undefined) return this.#starting;
    // A process is ending, or could not be started. A timer starts the next one.
    if (this.#process !== undefined || this.#cancelRetry !== undefined) throw passing(this.#failure);
    return this.#startOnce();
  }

  #startOnce(): Promise<TokenProcess> {
    const starting = this.#start().finally(() => (this.#starting = undefined));
    this.#starting = starting;
    return starting;
  }

  async #start(): Promise<TokenProcess> {
    const { pin: _pin, ...request } = this.#target;
    this.#pins.begin();
    try {
      const process = await TokenProcess.start(request, (token) => this.#pins.next(token), this.#settings);
      this.#wasOpen = true;
      this.#pins.worked();
      this.#process = process;
      void process.ended.then((failure) => this.#onEnd(process, failure));
      return process;
    } catch (thrown) {
      const error = thrown instanceof TokenFailure ? this.#withNames(thrown) : thrown;
      const failure =
        error instanceof TokenFailure ? error : new TokenFailure("unavailable", "the PIN cannot be read", true);
      this.#pins.failed(failure);
      this.#failedStarts += 1;
      this.#retryLater(failure);
      // A failure of the first start may be a wrong configuration. After a good start, failures may pass.
      const mayPass = this.#pins.refusal === undefined && (this.#wasOpen || failure.reason === "login");
      throw mayPass ? passing(failure) : error;
    }
  }

  /** Adds the names of token and PIN source to a failure of a login, where the mistake must be. */
  #withNames({ reason, message, lost }: TokenFailure): TokenFailure {
    const { token, pin } = this.#target;
    const source = pin === undefined ? "" : `, PIN from ${describePin(pin)}`;
    const name = reason === "pin" || reason === "login" ? `${nameOfToken(token)}${source}: ` : "";
    return new TokenFailure(reason, `${name}${message}`, lost);
  }

  #onEnd(process: TokenProcess, failure: TokenFailure | undefined): void {
    this.#process = undefined;
    if (failure === undefined) return;
    this.#failedStarts = process.hasSigned ? 0 : this.#failedStarts + 1;
    this.#retryLater(failure);
  }

  #retryLater(failure: TokenFailure): void {
    this.#failure = failure;
    if (this.#users === 0 || this.#pins.refusal !== undefined) return;
    const delayMs = this.#failedStarts === 0 ? 0 : Math.min(firstDelayMs * 2 ** (this.#failedStarts - 1), lastDelayMs);
    this.#cancelRetry = this.#settings.clock.setTimer(() => {
      this.#cancelRetry = undefined;
      // The next call gets the error.
      this.#startOnce().catch(() => {});
    }, delayMs);
  }
}

const passing = ({ message }: TokenFailure): TokenFailure => new TokenFailure("unavailable", message, true);
