import type { Handle, PKCS11 } from "pkcs11js";
import { CKF, CKM } from "./constants.ts";
import { TokenFailure, failureOf } from "./failures.ts";

// Twice a P-256 signature, for modules that check the room before they know the size.
const outputBytes = 128;
/** Signatures that fail one after another, for no reason that a session could be blamed for. */
const maxFailuresInARow = 3;

/**
 * A session with the buffers of its one operation. They belong to the session, and the pool holds every session, so that they stay
 * where they are for as long as another thread reads and writes them.
 */
interface Session {
  handle: Handle;
  readonly input: Buffer;
  readonly output: Buffer;
}

/** Sessions of one token for signing, each with one operation at a time. Runs in the child. */
export class SessionPool {
  readonly #module: PKCS11;
  readonly #slot: Handle;
  readonly #all = new Set<Session>();
  readonly #free: Session[] = [];
  readonly #waiting: ((session: Session) => void)[] = [];
  #failuresInARow = 0;

  /** Opens `count` sessions, or as many as the token allows. */
  constructor(module: PKCS11, slot: Handle, count: number) {
    this.#module = module;
    this.#slot = slot;
    for (let index = 0; index < count; index += 1) {
      try {
        this.#add(this.#open());
      } catch (error) {
        if (index === 0 || failureOf(error, "").reason !== "throttled") throw error;
        break;
      }
    }
  }

  /** Runs `task` with a free session; whoever has waited longest is next. */
  async use<T>(task: (handle: Handle) => T): Promise<T> {
    const session = this.#free.pop() ?? (await this.#turn());
    try {
      return task(session.handle);
    } finally {
      this.#release(session);
    }
  }

  /** ECDSA over a digest of 32 bytes as it is. */
  async sign(key: Handle, digest: Uint8Array): Promise<Uint8Array> {
    const session = this.#free.pop() ?? (await this.#turn());
    try {
      session.input.set(digest);
      this.#module.C_SignInit(session.handle, { mechanism: CKM.ECDSA }, key);
      const signature = Uint8Array.from(await this.#module.C_SignAsync(session.handle, session.input, session.output));
      this.#failuresInARow = 0;
      return signature;
    } catch (error) {
      const failure = failureOf(error, "C_Sign");
      this.#failuresInARow += 1;
      const isReplaced = failure.lost || this.#replace(session);
      const lost = failure.lost || !isReplaced || this.#failuresInARow >= maxFailuresInARow;
      throw new TokenFailure(failure.reason, failure.message, lost);
    } finally {
      this.#release(session);
    }
  }

  /** Modules leave an operation active where it failed, and the session is of no use any more. */
  #replace(session: Session): boolean {
    try {
      // The login of a token ends with its last session, so that the new one is opened first.
      const next = this.#open();
      this.#module.C_CloseSession(session.handle);
      session.handle = next;
      return true;
    } catch {
      return false;
    }
  }

  #open(): Handle {
    return this.#module.C_OpenSession(this.#slot, CKF.SERIAL_SESSION);
  }

  #add(handle: Handle): void {
    const session = { handle, input: Buffer.alloc(32), output: Buffer.alloc(outputBytes) };
    this.#all.add(session);
    this.#free.push(session);
  }

  #turn(): Promise<Session> {
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  #release(session: Session): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#free.push(session);
    else next(session);
  }
}
