import { type ProcessSettings, TokenProcess } from "./child-client.ts";
import { TokenFailure } from "./failure.ts";
import type { TokenRequest } from "./messages.ts";
import { type PinSource, type PinAttempts, createPinAttempts, describePin } from "./pin.ts";
import { nameOfToken } from "./uri.ts";

/** A token, its module, and the source of its PIN. */
export interface ConnectionTarget extends TokenRequest {
  readonly pin: PinSource | undefined;
}

const firstDelayMs = 100;
const lastDelayMs = 5_000;

/**
 * A token's process, which is kept for as long as signers use it. If the process exits, it is replaced. The first
 * replacement is immediate. Later replacements are delayed by 100 ms, 200 ms and so on, up to 5 s, until the token has
 * signed again. In the meantime, calls fail with a retryable error.
 */
export class Connection {
  readonly #target: ConnectionTarget;
  readonly #settings: ProcessSettings;
  readonly #pins: PinAttempts;
  #users = 0;
  #process: TokenProcess | undefined;
  #starting: Promise<TokenProcess> | undefined;
  #stopping: Promise<void> | undefined;
  #cancelRetry: (() => void) | undefined;
  /** The reason there is no usable process. */
  #failure = new TokenFailure("unavailable", "the token is being reopened", true);
  #failedStarts = 0;
  #wasOpen = false;

  constructor(target: ConnectionTarget, settings: ProcessSettings) {
    this.#target = target;
    this.#settings = settings;
    this.#pins = createPinAttempts(target.pin, target.modulePath);
  }

  /** The process, if it currently accepts calls. */
  get current(): TokenProcess | undefined {
    return this.#process?.isUsable === true ? this.#process : undefined;
  }

  /** Keeps the token open until {@link release}. */
  acquire(): void {
    this.#users += 1;
  }

  /** Releases the token. The last release ends the process once the calls in flight have finished. */
  async release(): Promise<void> {
    this.#users -= 1;
    if (this.#users > 0) return;
    this.#cancelRetry?.();
    this.#cancelRetry = undefined;
    await this.#starting?.catch(() => {});
    // In the meantime, the token may have been acquired again.
    if (this.#users > 0) return;
    this.#stopping ??= this.#process?.stop().finally(() => (this.#stopping = undefined));
    await this.#stopping;
  }

  /**
   * Returns the token's process once it has started. Rejects with {@link TokenFailure} or with an error from `readPin`.
   */
  async process(): Promise<TokenProcess> {
    await this.#stopping;
    if (this.#pins.refusal !== undefined) throw this.#pins.refusal;
    if (this.current !== undefined) return this.current;
    if (this.#starting !== undefined) return this.#starting;
    // A process is exiting or could not be started. A timer starts the next one.
    if (this.#process !== undefined || this.#cancelRetry !== undefined) throw retryable(this.#failure);
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
      this.#pins.accepted();
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
      // If the very first start fails, the configuration may be wrong. Failures after a successful start may be
      // temporary.
      const isTemporary = this.#pins.refusal === undefined && (this.#wasOpen || failure.reason === "login");
      throw isTemporary ? retryable(failure) : error;
    }
  }

  /** Adds the token's name and the PIN source to a login failure, because one of them must be wrong. */
  #withNames({ reason, message, lost }: TokenFailure): TokenFailure {
    const { token, pin } = this.#target;
    const source = pin === undefined ? "" : `, PIN from ${describePin(pin)}`;
    const prefix = reason === "pin" || reason === "login" ? `${nameOfToken(token)}${source}: ` : "";
    return new TokenFailure(reason, `${prefix}${message}`, lost);
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
      // The next call rejects with the error.
      this.#startOnce().catch(() => {});
    }, delayMs);
  }
}

const retryable = ({ message }: TokenFailure): TokenFailure => new TokenFailure("unavailable", message, true);
