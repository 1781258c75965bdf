import type { ChildProcess } from "node:child_process";
import { abortable } from "../../base/async.ts";
import type { Clock } from "../../base/clock.ts";
import { slowTimeoutMs } from "../signer/backend-options.ts";
import { TokenFailure, fromData } from "./failure.ts";
import { forkChild } from "./fork-child.ts";
import type {
  Result,
  Call,
  FromChild,
  Operation,
  Results,
  ToChild,
  TokenDescription,
  TokenRequest,
} from "./messages.ts";

/** Reads a token's PIN. Rejects if no PIN may be tried. */
export type ReadPin = (token: TokenDescription) => Promise<string | undefined>;

/** Settings for a token's child process. */
export interface ProcessSettings {
  /** Time limit for one signature or search, in milliseconds, not including time in the queue. */
  readonly timeoutMs: number;
  /** Names of additional environment variables that the module needs. */
  readonly environment: readonly string[];
  readonly clock: Clock;
}

interface Pending {
  readonly operation: Operation;
  readonly signal: AbortSignal | undefined;
  readonly resolve: (value: Results[keyof Results]) => void;
  readonly reject: (error: Error) => void;
  /** Time at which the operation was sent to the child, in epoch milliseconds. */
  sinceMs: number;
}

/** Time to wait for a killed process to exit before starting another, in milliseconds. */
const killedMs = 2_000;

/**
 * A child process that has loaded the module and logged in to the token. Once it has exited, create a new TokenProcess.
 */
export class TokenProcess {
  /** Resolves when the process has exited, with the failure that ended it or, after {@link stop}, with `undefined`. */
  readonly ended: Promise<TokenFailure | undefined>;
  /** Whether the token has signed anything. */
  hasSigned = false;
  token: TokenDescription = { label: "", serial: "" };
  readonly #child: ChildProcess;
  readonly #settings: ProcessSettings;
  /** Calls waiting for a session. */
  readonly #queue: Pending[] = [];
  /** Calls that the child is running, at most one per session, oldest first. */
  readonly #inFlight = new Map<number, Pending>();
  #sessions = 0;
  #nextId = 0;
  #cancelTimer: (() => void) | undefined;
  /** Reason why the process no longer accepts calls. */
  #failure: TokenFailure | undefined;
  #resolveEnded: () => void = () => {};

  /** Starts a process. Rejects with {@link TokenFailure} or with an error from `readPin`. */
  static async start(request: TokenRequest, readPin: ReadPin, settings: ProcessSettings): Promise<TokenProcess> {
    const process = new TokenProcess(request.sessions, settings);
    try {
      await process.#open(request, readPin);
      return process;
    } catch (error) {
      process.#kill(error instanceof TokenFailure ? error : closed);
      await process.ended;
      throw error;
    }
  }

  private constructor(sessions: number, settings: ProcessSettings) {
    this.#settings = settings;
    this.#child = forkChild(sessions, settings.environment);
    this.#child.stdin?.on("error", () => {});
    this.ended = new Promise((resolve) => {
      this.#resolveEnded = () => resolve(this.#failure === closed ? undefined : this.#failure);
    });
    const onEnd = (how: string): void => {
      this.#fail(new TokenFailure("unavailable", `the module's process ended (${how})`, true));
      this.#resolveEnded();
    };
    this.#child.once("exit", (code, signal) => onEnd(signal ?? `exit code ${code}`));
    this.#child.on("error", (error) => {
      if (this.#child.pid === undefined) onEnd((error as NodeJS.ErrnoException).code ?? "it could not be started");
    });
  }

  /** Whether the process accepts calls. */
  get isUsable(): boolean {
    return this.#failure === undefined;
  }

  /**
   * Runs an operation. If `signal` aborts, a queued operation is dropped; a running operation continues, but its result
   * is ignored.
   */
  call<K extends Operation["kind"]>(
    operation: Extract<Operation, { kind: K }>,
    signal?: AbortSignal,
  ): Promise<Results[K]> {
    const completed = new Promise<Results[keyof Results]>((resolve, reject) => {
      if (this.#failure !== undefined) return reject(this.#failure);
      // One message contains all calls made in this turn of the event loop.
      if (this.#queue.push({ operation, signal, resolve, reject, sinceMs: 0 }) === 1) {
        queueMicrotask(() => this.#sendQueued());
      }
    });
    return abortable(completed, signal) as Promise<Results[K]>;
  }

  /** Stops accepting calls, lets the calls in flight finish, and ends the process. */
  async stop(): Promise<void> {
    this.#retire(closed);
    await this.ended;
  }

  async #open(request: TokenRequest, readPin: ReadPin): Promise<void> {
    const { clock } = this.#settings;
    let step = "starting the module";
    let isLoggingIn = false;
    const expire = (): void =>
      this.#kill(new TokenFailure("unavailable", `${step} took more than ${slowTimeoutMs} ms`, true));
    const cancel = clock.setTimer(expire, slowTimeoutMs);
    try {
      await new Promise<void>((resolve, reject) => {
        this.#child.on("message", (message: FromChild) => {
          if (message.kind === "login") {
            step = "starting the module and reading the PIN";
            readPin(message.token).then((pin) => {
              step = "starting the module and logging in";
              isLoggingIn = true;
              this.#send({ kind: "pin", pin });
            }, reject);
          } else if (message.kind === "ready") {
            this.token = message.token;
            this.#sessions = message.sessions;
            resolve();
          } else if (message.kind === "failed") {
            reject(fromData(message.failure));
          } else {
            for (const result of message.results) this.#settle(result);
            this.#sendQueued();
          }
        });
        void this.ended.then((failure = closed) => {
          // If there was no reply after the PIN was sent, the PIN may have been refused.
          reject(isLoggingIn ? new TokenFailure("login", failure.message, true) : failure);
        });
        this.#send({ kind: "start", request });
      });
    } finally {
      cancel();
    }
  }

  #sendQueued(): void {
    const calls: Call[] = [];
    while (this.#inFlight.size < this.#sessions) {
      const pending = this.#queue.shift();
      if (pending === undefined) break;
      if (pending.signal?.aborted === true) continue;
      pending.sinceMs = this.#settings.clock.now();
      this.#inFlight.set(this.#nextId, pending);
      calls.push({ id: this.#nextId, operation: pending.operation });
      this.#nextId += 1;
    }
    if (calls.length > 0) this.#send({ kind: "calls", calls });
    this.#watch();
  }

  #settle(result: Result): void {
    const pending = this.#inFlight.get(result.id);
    if (pending === undefined) return;
    this.#inFlight.delete(result.id);
    // Generating or destroying a key may have blocked the other calls.
    if (isSlow(pending)) {
      for (const other of this.#inFlight.values()) other.sinceMs = this.#settings.clock.now();
    }
    if ("value" in result) {
      this.hasSigned ||= pending.operation.kind === "sign";
      pending.resolve(result.value);
      return;
    }
    const failure = fromData(result.failure);
    pending.reject(failure);
    // Other calls can still complete before the module is finalized.
    if (failure.lost) this.#retire(failure);
  }

  /** Time limit for the calls in flight, in milliseconds. */
  get #limitMs(): number {
    return [...this.#inFlight.values()].some(isSlow) ? slowTimeoutMs : this.#settings.timeoutMs;
  }

  /** Ends the process if its module does not respond in time. */
  #watch(): void {
    const [oldest] = this.#inFlight.values();
    if (oldest === undefined || this.#cancelTimer !== undefined) return;
    const { clock, timeoutMs } = this.#settings;
    const expiredSinceMs = clock.now() - this.#limitMs;
    const leftMs = oldest.sinceMs - expiredSinceMs;
    if (leftMs > 0) {
      const check = (): void => {
        this.#cancelTimer = undefined;
        this.#watch();
      };
      // Deferred with setImmediate, because results may have arrived while this process was too busy to read them.
      this.#cancelTimer = clock.setTimer(() => setImmediate(check), Math.min(leftMs, timeoutMs));
      return;
    }
    const message = "the module did not respond in time, and its process was replaced";
    for (const { sinceMs, reject } of this.#inFlight.values()) {
      if (sinceMs <= expiredSinceMs) reject(new TokenFailure("timeout", message, true));
    }
    this.#kill(new TokenFailure("unavailable", message, true));
  }

  /** Stops accepting calls, but gives the process time to finish the calls in flight. */
  #retire(failure: TokenFailure): void {
    if (this.#failure !== undefined) return;
    this.#failure = failure;
    for (const { reject } of this.#queue.splice(0)) reject(failure);
    this.#send({ kind: "stop" });
    const cancel = this.#settings.clock.setTimer(() => this.#kill(failure), this.#limitMs);
    void this.ended.then(cancel);
  }

  #kill(failure: TokenFailure): void {
    this.#fail(failure);
    this.#child.kill("SIGKILL");
    const cancel = this.#settings.clock.setTimer(() => this.#resolveEnded(), killedMs);
    void this.ended.then(cancel);
  }

  /** Rejects all calls. Keeps the first failure as the reason. */
  #fail(failure: TokenFailure): void {
    this.#failure ??= failure;
    this.#cancelTimer?.();
    for (const { reject } of [...this.#inFlight.values(), ...this.#queue.splice(0)]) reject(failure);
    this.#inFlight.clear();
  }

  #send(message: ToChild): void {
    // A child that is not connected has exited, and an "exit" event follows.
    if (this.#child.connected) this.#child.send(message, () => {});
  }
}

const isSlow = ({ operation }: Pending): boolean => operation.kind !== "sign" && operation.kind !== "find";

const closed = new TokenFailure("unavailable", "the signer was closed");
