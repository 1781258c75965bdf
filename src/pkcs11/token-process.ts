import type { ChildProcess } from "node:child_process";
import type { Clock } from "../clock.ts";
import { CallFailure } from "./call-failure.ts";
import { forkChild } from "./fork-child.ts";
import type {
  Answer,
  Call,
  Failure,
  FromChild,
  Operation,
  Results,
  StartMessage,
  ToChild,
  TokenDescription,
} from "./messages.ts";

/** Gives the PIN of a token, or rejects where there is none that may be tried. */
export type ReadPin = (token: TokenDescription) => Promise<string | undefined>;

/** How the process of a token is run. */
export interface ProcessSettings {
  /** Time for one signature or search, from when it is handed over, in milliseconds. */
  readonly timeoutMs: number;
  /** The same for the start with its login, and for making and destroying keys. */
  readonly slowTimeoutMs: number;
  /** Environment variables that the child does not get. */
  readonly hiddenVariables: readonly string[];
  readonly clock: Clock;
}

interface Pending {
  readonly operation: Operation;
  readonly resolve: (value: Results[keyof Results]) => void;
  readonly reject: (error: Error) => void;
  deadlineMs: number;
}

/** After a kill, how long to wait for the process to be gone before another one is started. */
const killedMs = 2_000;

/** One life of the process that has the module loaded and is logged in to the token. It ends once, and is not started again. */
export class TokenProcess {
  /** Settles when the process is gone; with the failure that made an end of it, or `undefined` after {@link stop}. */
  readonly ended: Promise<Failure | undefined>;
  /** Whether the token has signed anything. */
  hasSigned = false;
  token: TokenDescription = { label: "", serial: "" };
  readonly #child: ChildProcess;
  readonly #settings: ProcessSettings;
  readonly #maxUnderWay: number;
  readonly #underWay = new Map<number, Pending>();
  readonly #queue: [id: number, pending: Pending][] = [];
  #outbox: Call[] = [];
  #nextId = 0;
  #cancelTimer: (() => void) | undefined;
  #failure: Failure | undefined;
  #isEnding = false;
  #isLoggingIn = false;
  #slowUntilMs = 0;
  #gone: () => void = () => {};

  /** Rejects with {@link CallFailure}, and with what `readPin` rejects with. */
  static async start(message: StartMessage, readPin: ReadPin, settings: ProcessSettings): Promise<TokenProcess> {
    const process = new TokenProcess(message.sessions, settings);
    await process.#start(message, readPin);
    return process;
  }

  private constructor(sessions: number, settings: ProcessSettings) {
    this.#settings = settings;
    // One more for each session is on its way while the others are at the token.
    this.#maxUnderWay = 2 * sessions;
    this.#child = forkChild(sessions, settings.hiddenVariables);
    this.#child.stdin?.on("error", () => {});
    this.ended = new Promise((resolve) => (this.#gone = () => resolve(this.#failure)));
    const onEnd = (how: string): void => {
      this.#fail({ reason: "unavailable", message: `the process of the module ended (${how})`, lost: true });
      this.#gone();
    };
    this.#child.once("exit", (code, signal) => onEnd(signal ?? `exit code ${code}`));
    this.#child.on("error", (error) => {
      if (this.#child.pid === undefined) onEnd((error as NodeJS.ErrnoException).code ?? "cannot be started");
    });
  }

  /** Whether it takes calls. */
  get isUsable(): boolean {
    return !this.#isEnding;
  }

  /** Calls that wait for those that were handed over before are cancelled by `signal`; the others go on, but nobody waits. */
  call<K extends Operation["kind"]>(
    operation: Extract<Operation, { kind: K }>,
    signal?: AbortSignal,
  ): Promise<Results[K]> {
    return new Promise<Results[keyof Results]>((resolve, reject) => {
      if (this.#isEnding) return reject(new CallFailure(this.#failure ?? stopped));
      if (signal?.aborted === true) return reject(signal.reason as Error);
      const id = this.#nextId;
      this.#nextId += 1;
      const pending: Pending = { operation, resolve, reject, deadlineMs: 0 };
      if (signal !== undefined) this.#followSignal(id, pending, signal);
      if (this.#underWay.size < this.#maxUnderWay) this.#hand(id, pending);
      else this.#queue.push([id, pending]);
    }) as Promise<Results[K]>;
  }

  /** Takes no more calls, finishes those under way, and ends the process. */
  async stop(): Promise<void> {
    this.#retire(stopped);
    await this.ended;
  }

  async #start(message: StartMessage, readPin: ReadPin): Promise<void> {
    const { clock, slowTimeoutMs } = this.#settings;
    let step = "the start of the module";
    const expire = (): void => this.#kill(timedOut(`${step} took more than ${slowTimeoutMs} ms`));
    const cancel = clock.setTimer(expire, slowTimeoutMs);
    try {
      await new Promise<void>((resolve, reject) => {
        this.#child.on("message", (message: FromChild) => {
          if (message.kind === "login") {
            step = "to read the PIN after the start of the module";
            readPin(message.token).then((pin) => {
              step = "the login after the start of the module";
              // From now on, where nothing follows, nobody knows what became of the PIN.
              this.#isLoggingIn = true;
              this.#tell({ kind: "pin", pin });
            }, reject);
          } else if (message.kind === "ready") {
            this.token = message.token;
            resolve();
          } else if (message.kind === "failed") {
            reject(new CallFailure(message.failure));
          } else {
            for (const answer of message.answers) this.#settle(answer);
            this.#handNext();
          }
        });
        void this.ended.then((failure = stopped) => {
          reject(new CallFailure(this.#isLoggingIn ? { ...failure, reason: "login" } : failure));
        });
        this.#tell(message);
      });
    } catch (error) {
      // It has nothing under way that would have to be finished.
      this.#kill(error instanceof CallFailure ? error.failure : stopped);
      await this.ended;
      throw error;
    } finally {
      cancel();
    }
  }

  #followSignal(id: number, pending: Pending, signal: AbortSignal): void {
    const { resolve, reject } = pending;
    const abort = (): void => {
      const index = this.#queue.findIndex(([queued]) => queued === id);
      if (index !== -1) this.#queue.splice(index, 1);
      reject(signal.reason as Error);
    };
    signal.addEventListener("abort", abort, { once: true });
    const done = (): void => signal.removeEventListener("abort", abort);
    Object.assign(pending, {
      resolve: (value: Results[keyof Results]) => (done(), resolve(value)),
      reject: (error: Error) => (done(), reject(error)),
    });
  }

  #hand(id: number, pending: Pending): void {
    const { clock, timeoutMs, slowTimeoutMs } = this.#settings;
    const nowMs = clock.now();
    // While a key is made or destroyed, the token may do nothing else.
    if (isSlow(pending)) {
      this.#slowUntilMs = nowMs + slowTimeoutMs;
      for (const other of this.#underWay.values()) other.deadlineMs = this.#slowUntilMs;
    }
    pending.deadlineMs = Math.max(nowMs + timeoutMs, this.#slowUntilMs);
    this.#underWay.set(id, pending);
    this.#cancelTimer ??= clock.setTimer(() => this.#checkDeadlines(), timeoutMs);
    // Calls of one turn of the event loop go in one message.
    if (this.#outbox.push({ id, operation: pending.operation }) === 1) {
      queueMicrotask(() => {
        const calls = this.#outbox;
        this.#outbox = [];
        this.#tell({ kind: "calls", calls });
      });
    }
  }

  #handNext(): void {
    while (this.#underWay.size < this.#maxUnderWay) {
      const next = this.#queue.shift();
      if (next === undefined) return;
      this.#hand(...next);
    }
  }

  #settle(answer: Answer): void {
    const pending = this.#underWay.get(answer.id);
    if (pending === undefined) return;
    this.#underWay.delete(answer.id);
    if (isSlow(pending)) this.#slowUntilMs = 0;
    if ("value" in answer) {
      this.hasSigned ||= pending.operation.kind === "sign";
      pending.resolve(answer.value);
      return;
    }
    pending.reject(new CallFailure(answer.failure));
    // What is under way may still be answered; the module is finalised after that.
    if (answer.failure.lost) this.#retire(answer.failure);
  }

  #checkDeadlines(): void {
    this.#cancelTimer = undefined;
    // Answers may have arrived that this process, busy itself, has not read yet.
    setImmediate(() => {
      if (this.#underWay.size === 0 || this.#cancelTimer !== undefined) return;
      const { clock } = this.#settings;
      const earliestMs = Math.min(...[...this.#underWay.values()].map(({ deadlineMs }) => deadlineMs));
      const leftMs = earliestMs - clock.now();
      if (leftMs > 0) this.#cancelTimer = clock.setTimer(() => this.#checkDeadlines(), leftMs);
      else this.#kill(timedOut("the module did not answer in time, and its process was replaced"));
    });
  }

  /** Lets it finish what is under way, within the usual time. */
  #retire(failure: Failure): void {
    if (this.#isEnding) return;
    this.#isEnding = true;
    if (failure !== stopped) this.#failure = failure;
    for (const [, pending] of this.#queue.splice(0)) pending.reject(new CallFailure(failure));
    // Calls of this turn are told first.
    queueMicrotask(() => this.#tell({ kind: "stop" }));
    const { clock, timeoutMs, slowTimeoutMs } = this.#settings;
    const limitMs = [...this.#underWay.values()].some(isSlow) ? slowTimeoutMs : timeoutMs;
    const cancel = clock.setTimer(() => this.#kill(failure), limitMs);
    void this.ended.then(cancel);
  }

  #kill(failure: Failure): void {
    this.#fail(failure);
    this.#child.kill("SIGKILL");
    const cancel = this.#settings.clock.setTimer(() => this.#gone(), killedMs);
    void this.ended.then(cancel);
  }

  /** Fails everything that waits. The first failure is the one that counts. */
  #fail(failure: Failure): void {
    if (!this.#isEnding) this.#failure = failure;
    this.#isEnding = true;
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    const nowMs = this.#settings.clock.now();
    const waiting = [...this.#underWay.values(), ...this.#queue.splice(0).map(([, pending]) => pending)];
    this.#underWay.clear();
    for (const { deadlineMs, reject } of waiting) {
      reject(new CallFailure(failure, deadlineMs !== 0 && deadlineMs <= nowMs));
    }
  }

  #tell(message: ToChild): void {
    // One that cannot be told has ended, which is seen elsewhere.
    if (this.#child.connected) this.#child.send(message, () => {});
  }
}

const isSlow = ({ operation }: Pending): boolean => operation.kind !== "sign" && operation.kind !== "find";

const stopped: Failure = { reason: "unavailable", message: "the signer was closed", lost: false };

const timedOut = (message: string): Failure => ({ reason: "unavailable", message, lost: true });
