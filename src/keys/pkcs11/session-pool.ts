import type { Handle, PKCS11 } from "pkcs11js";
import { CKF, CKM } from "./constants.ts";
import { TokenFailure, toFailure } from "./failure.ts";
import type { OpenSession } from "./key-objects.ts";

// Twice the size of a signature, for modules that check the buffer's size before they know the signature's.
const outputBytes = 128;
/** Number of consecutive failures after which the pool stops replacing sessions. */
const maxConsecutiveFailures = 3;

/**
 * A session, with the buffers for its operation. The pool never drops a session, because another thread may still be
 * using the buffers.
 */
interface PooledSession extends OpenSession {
  handle: Handle;
  readonly input: Buffer;
  readonly output: Buffer;
}

/**
 * One token's sessions, each of which runs one operation at a time. The parent never has more calls in flight than
 * there are sessions. This code runs in the child.
 */
export class SessionPool {
  readonly #module: PKCS11;
  readonly #slot: Handle;
  readonly #all: PooledSession[] = [];
  readonly #free: PooledSession[];
  #consecutiveFailures = 0;

  /** Opens `count` sessions, or as many as the token allows. */
  constructor(module: PKCS11, slot: Handle, count: number) {
    this.#module = module;
    this.#slot = slot;
    try {
      while (this.#all.length < count) {
        const handle = this.#open();
        this.#all.push({ module, handle, input: Buffer.alloc(32), output: Buffer.alloc(outputBytes) });
      }
    } catch (error) {
      if (this.#all.length === 0 || toFailure(error).reason !== "throttled") throw error;
    }
    this.#free = [...this.#all];
  }

  get size(): number {
    return this.#all.length;
  }

  /** Runs `task` with a free session. */
  async use<T>(task: (session: PooledSession) => T | Promise<T>): Promise<T> {
    const session = this.#free.pop();
    if (session === undefined) throw new TokenFailure("throttled", "no session is free");
    try {
      return await task(session);
    } finally {
      this.#free.push(session);
    }
  }

  /** Signs a 32-byte digest with ECDSA. */
  sign(key: Handle, digest: Uint8Array): Promise<Uint8Array> {
    return this.use(async (session) => {
      const { module, handle, input, output } = session;
      try {
        input.set(digest);
        module.C_SignInit(handle, { mechanism: CKM.ECDSA }, key);
        const signature = Uint8Array.from(await module.C_SignAsync(handle, input, output));
        this.#consecutiveFailures = 0;
        return signature;
      } catch (error) {
        const { reason, message, lost } = toFailure(error, "C_Sign");
        this.#consecutiveFailures += 1;
        const isRecovered = !lost && this.#replace(session) && this.#consecutiveFailures < maxConsecutiveFailures;
        throw new TokenFailure(reason, message, !isRecovered);
      }
    });
  }

  /** Replaces a session after a failure, because the failed operation may still be running in it. */
  #replace(session: PooledSession): boolean {
    try {
      // Closing the last session would log out, so the new session is opened first.
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
}
