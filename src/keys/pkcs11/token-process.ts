import type { ChildProcess } from "node:child_process";
import { abortable } from "../../base/async.ts";
import type { Clock } from "../../base/clock.ts";
import { slowTimeoutMs } from "../signer/backend-options.ts";
import { TokenFailure, fromData } from "./failure.ts";
import { forkChild } from "./fork-child.ts";
import type {
  Answer,
  Call,
  FromChild,
  Operation,
  Results,
  ToChild,
  TokenDescription,
  TokenRequest,
} from "./messages.ts";

/** Reads the PIN of a token, or rejects if none may be tried. */
export type ReadPin = (token: TokenDescription) => Promise<string | undefined>;

/** Settings of the child process of a token. */
export interface ProcessSettings {
  /** Time for one signature or search, without time in the queue, in milliseconds. */
  readonly timeoutMs: number;
  /** Names of more environment variables that the module needs. */
  readonly environment: readonly string[];
  readonly clock: Clock;
}

interface Pending {
  readonly operation: Operation;
  readonly signal: AbortSignal | undefined;
  readonly resolve: (value: Results[keyof Results]) => void;
  readonly reject: (error: Error) => void;
  /** When the token got the operation. */
  sinceMs: number;
}

/** How long to wait for a killed process to end before another one is started. */
const killedMs = 2_000;

/** One child process, with the module loaded and a login at the token. After its end, a new TokenProcess is needed. */
export class TokenProcess {
  /** Resolves when the process is gone, with the failure that ended it, or `undefined` after {@link stop}. */
  readonly ended: Promise<TokenFailure | undefined>;
  /** Whether the token has signed anything. */
  hasSigned = false;
  token: TokenDescription = { label: "", serial: "" };
  readonly #child: ChildProcess;
  readonly #settings: ProcessSettings;
  /** Calls that wait for a session. */
  readonly #queue: Pending[] = [];
  /** Calls at the child, at most one for each session, the oldest first. */
  readonly #underWay = new Map<number, Pending>();
  #sessions = 0;
  #nextId = 0;
  #cancelTimer: (() => void) | undefined;
  /** Why it takes no more calls. */
  #failure: TokenFailure | undefined;
  #gone: () => void = () => {};

  /** Rejects with {@link TokenFailure}, or as `readPin` does. */
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
      this.#gone = () => resolve(this.#failure === closed ? undefined : this.#failure);
    });
    const onEnd = (how: string): void => {
      this.#fail(new TokenFailure("unavailable", `the process of the module ended (${how})`, true));
      this.#gone();
    };
    this.#child.once("exit", (code, signal) => onEnd(signal ?? `exit code ${code}`));
    this.#child.on("error", (error) => {
      if (this.#child.pid === undefined) onEnd((error as NodeJS.ErrnoException).code ?? "cannot be started");
    });
  }

  /** Whether it takes calls. */
  get isUsable(): boolean {
    return this.#failure === undefined;
  }

  /** Runs an operation. If `signal` aborts, an operation in the queue is dropped; one at the token goes on, but its result is ignored. */
  call<K extends Operation["kind"]>(
    operation: Extract<Operation, { kind: K }>,
    signal?: AbortSignal,
  ): Promise<Results[K]> {
    const answered = new Promise<Results[keyof Results]>((resolve, reject) => {
      if (this.#failure !== undefined) return reject(this.#failure);
      // One message for all calls of this turn of the event loop.
      if (this.#queue.push({ operation, signal, resolve, reject, sinceMs: 0 }) === 1) {
        queueMicrotask(() => this.#handOver());
      }
    });
    return abortable(answered, signal) as Promise<Results[K]>;
  }

  /** Takes no more calls, finishes those under way, and ends the process. */
  async stop(): Promise<void> {
    this.#retire(closed);
    await this.ended;
  }

  async #open(request: TokenRequest, readPin: ReadPin): Promise<void> {
    const { clock } = this.#settings;
    let step = "the start of the module";
    let isLoggingIn = false;
    const expire = (): void =>
      this.#kill(new TokenFailure("unavailable", `${step} took more than ${slowTimeoutMs} ms`, true));
    const cancel = clock.setTimer(expire, slowTimeoutMs);
    try {
      await new Promise<void>((resolve, reject) => {
        this.#child.on("message", (message: FromChild) => {
          if (message.kind === "login") {
            step = "to read the PIN after the start of the module";
            readPin(message.token).then((pin) => {
              step = "the login after the start of the module";
              isLoggingIn = true;
              this.#tell({ kind: "pin", pin });
            }, reject);
          } else if (message.kind === "ready") {
            this.token = message.token;
            this.#sessions = message.sessions;
            resolve();
          } else if (message.kind === "failed") {
            reject(fromData(message.failure));
          } else {
            for (const answer of message.answers) this.#settle(answer);
            this.#handOver();
          }
        });
        void this.ended.then((failure = closed) => {
          // After the PIN was sent and nothing came back, it may have been refused.
          reject(isLoggingIn ? new TokenFailure("login", failure.message, true) : failure);
        });
        this.#tell({ kind: "start", request });
      });
    } finally {
      cancel();
    }
  }

  #handOver(): void {
    const calls: Call[] = [];
    while (this.#underWay.size < this.#sessions) {
      const pending = this.#queue.shift();
      if (pending === undefined) break;
      if (pending.signal?.aborted === true) continue;
      pending.sinceMs = this.#settings.clock.now();
      this.#underWay.set(this.#nextId, pending);
      calls.push({ id: this.#nextId, operation: pending.operation });
      this.#nextId += 1;
    }
    if (calls.length > 0) this.#tell({ kind: "calls", calls });
    this.#watch();
  }

  #settle(answer: Answer): void {
    const pending = this.#underWay.get(answer.id);
    if (pending === undefined) return;
    this.#underWay.delete(answer.id);
    // Making or destroying a key may have blocked the other calls.
    if (isSlow(pending)) {
      for (const other of this.#underWay.values()) other.sinceMs = this.#settings.clock.now();
    }
    if ("value" in answer) {
      this.hasSigned ||= pending.operation.kind === "sign";
      pending.resolve(answer.value);
      return;
    }
    const failure = fromData(answer.failure);
    pending.reject(failure);
    // Other calls may still be answered before the module is finalised.
    if (failure.lost) this.#retire(failure);
  }

  /** Time limit of the calls under way. */
  get #limitMs(): number {
    return [...this.#underWay.values()].some(isSlow) ? slowTimeoutMs : this.#settings.timeoutMs;
  }

  /** Ends a process whose module does not answer in time. */
  #watch(): void {
    const [oldest] = this.#underWay.values();
    if (oldest === undefined || this.#cancelTimer !== undefined) return;
    const { clock, timeoutMs } = this.#settings;
    const expiredSinceMs = clock.now() - this.#limitMs;
    const leftMs = oldest.sinceMs - expiredSinceMs;
    if (leftMs > 0) {
      const look = (): void => {
        this.#cancelTimer = undefined;
        this.#watch();
      };
      // setImmediate: this process may have been busy, with answers that it has not read yet.
      this.#cancelTimer = clock.setTimer(() => setImmediate(look), Math.min(leftMs, timeoutMs));
      return;
    }
    const message = "the module did not answer in time, and its process was replaced";
    for (const { sinceMs, reject } of this.#underWay.values()) {
      if (sinceMs <= expiredSinceMs) reject(new TokenFailure("timeout", message, true));
    }
    this.#kill(new TokenFailure("unavailable", message, true));
  }

  /** Takes no more calls, and lets the process finish those under way within their time limit. */
  #retire(failure: TokenFailure): void {
    if (this.#failure !== undefined) return;
    this.#failure = failure;
    for (const { reject } of this.#queue.splice(0)) reject(failure);
    this.#tell({ kind: "stop" });
    const cancel = this.#settings.clock.setTimer(() => this.#kill(failure), this.#limitMs);
    void this.ended.then(cancel);
  }

  #kill(failure: TokenFailure): void {
    this.#fail(failure);
    this.#child.kill("SIGKILL");
    const cancel = this.#settings.clock.setTimer(() => this.#gone(), killedMs);
    void this.ended.then(cancel);
  }

  /** Fails all calls. The first failure is kept as the reason. */
  #fail(failure: TokenFailure): void {
    this.#failure ??= failure;
    this.#cancelTimer?.();
    for (const { reject } of [...this.#underWay.values(), ...this.#queue.splice(0)]) reject(failure);
    this.#underWay.clear();
  }

  #tell(message: ToChild): void {
    // A child that is not connected has ended, and "exit" follows.
    if (this.#child.connected) this.#child.send(message, () => {});
  }
}

const isSlow = ({ operation }: Pending): boolean => operation.kind !== "sign" && operation.kind !== "find";

const closed = new TokenFailure("unavailable", "the signer was closed");
