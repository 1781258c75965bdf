// One token after login. This code runs in the child.

import { accessSync, constants } from "node:fs";
import type * as Pkcs11js from "pkcs11js";
import type { Handle, PKCS11 } from "pkcs11js";
import { CKF, CKU } from "./constants.ts";
import { TokenFailure, toFailure, returnValue } from "./failure.ts";
import {
  type KeyPair,
  type OpenSession,
  describePair,
  destroyPair,
  findPair,
  generatePair,
  renamePair,
} from "./key-objects.ts";
import type { FoundKey, Operation, Results, TokenDescription, TokenRequest } from "./messages.ts";
import { SessionPool } from "./session-pool.ts";
import { type TokenSelector, nameOfToken } from "./uri.ts";

/** A token after login. Its errors can be converted with {@link toFailure}. */
export interface Token {
  readonly description: TokenDescription;
  /** Number of open sessions. */
  readonly sessions: number;
  run(operation: Operation): Promise<Results[keyof Results]>;
  /** Finalizes the module. Call this only while no other call is in flight; otherwise, modules may crash. */
  finalize(): void;
}

/**
 * Opens a token.
 *
 * @param askPin function that is called only if the token requires a PIN and a wrong PIN would not lock the token
 */
export async function openToken(
  { modulePath, token, sessions }: TokenRequest,
  askPin: (token: TokenDescription) => Promise<string | undefined>,
): Promise<Token> {
  const module = await loadModule(modulePath);
  const { slot, label, serial, flags } = findToken(module, token);
  // All sessions of a process share one login, which ends with the last session.
  const first = module.C_OpenSession(slot, CKF.SERIAL_SESSION);
  if ((flags & CKF.LOGIN_REQUIRED) !== 0) {
    checkTries(flags);
    login(module, first, await askPin({ label, serial }));
  }
  const pool = new SessionPool(module, slot, sessions);
  module.C_CloseSession(first);
  const pairs: KeyPair[] = [];

  function register(session: OpenSession, pair: KeyPair): FoundKey {
    return { key: pairs.push(pair) - 1, ...describePair(session, pair) };
  }

  function pairOf(key: number): KeyPair {
    const pair = pairs[key];
    if (pair === undefined) throw new TokenFailure("key", "no key has this number");
    return pair;
  }

  /** Runs `task` in a new session that can write, because the pool's sessions are read-only. */
  async function withWriteSession<T>(task: (session: OpenSession) => T | Promise<T>): Promise<T> {
    const handle = module.C_OpenSession(slot, CKF.SERIAL_SESSION | CKF.RW_SESSION);
    try {
      return await task({ module, handle });
    } finally {
      try {
        module.C_CloseSession(handle);
      } catch {
        // If the task failed, its error must be reported instead.
      }
    }
  }

  return {
    description: { label, serial },
    sessions: pool.size,

    async run(operation) {
      switch (operation.kind) {
        case "sign":
          return pool.sign(pairOf(operation.key).privateKey, operation.digest);
        case "find":
          return pool.use((session) => register(session, findPair(session, operation.key)));
        case "generate":
          return withWriteSession(async (session) =>
            register(session, await generatePair(session, operation.label, operation.id)),
          );
        case "rename":
          return withWriteSession((session) =>
            renamePair(session, pairOf(operation.key), operation.label, operation.id),
          );
        default:
          return withWriteSession((session) => destroyPair(session, operation.key));
      }
    },

    finalize: () => module.C_Finalize(),
  };
}

async function loadModule(path: string): Promise<PKCS11> {
  const loadFailure = (why: string): TokenFailure =>
    new TokenFailure("module", `the module cannot be loaded: ${path}: ${why}`);
  let library: typeof Pkcs11js;
  try {
    ({ default: library } = (await import("pkcs11js")) as unknown as { readonly default: typeof Pkcs11js });
  } catch {
    throw new TokenFailure("package", "pkcs11js is not installed or not compiled");
  }
  const module = new library.PKCS11();
  try {
    accessSync(path, constants.R_OK);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw loadFailure(code === "ENOENT" ? "the file does not exist" : `the file is not readable (${code})`);
  }
  try {
    module.load(path);
  } catch {
    throw loadFailure("it is not a PKCS#11 module for this machine, or one of its libraries is missing");
  }
  try {
    // The module will be called from several threads.
    module.C_Initialize({ flags: CKF.OS_LOCKING_OK });
  } catch (error) {
    const { reason, message } = toFailure(error);
    const advice = "check the module's configuration (such as SOFTHSM2_CONF) and its device";
    throw new TokenFailure(reason, `${message} from ${path}; ${advice}`, true);
  }
  return module;
}

/** A token that is present, with all attributes by which it can be selected. */
type PresentToken = Required<TokenSelector> & { readonly slot: Handle; readonly flags: number };

/** Finds the only matching token. */
function findToken(module: PKCS11, selector: TokenSelector): PresentToken {
  const present = module.C_GetSlotList(true).flatMap((slot) => presentToken(module, slot));
  const [token, ...others] = present.filter((token) =>
    Object.entries(selector).every(([name, value]) => token[name as keyof TokenSelector] === value),
  );
  if (token === undefined) {
    throw new TokenFailure(
      "unavailable",
      `${nameOfToken(selector)} is not present; tokens that are present: ${namesOf(present)}`,
    );
  }
  if (others.length > 0) {
    const several = `several tokens match ${nameOfToken(selector)}; select one using its serial`;
    throw new TokenFailure("ambiguous", `${several}: ${namesOf([token, ...others])}`);
  }
  return token;
}

function presentToken(module: PKCS11, slot: Handle): PresentToken[] {
  try {
    const { label, serialNumber, manufacturerID, model, flags } = module.C_GetTokenInfo(slot);
    return [
      {
        slot,
        flags,
        label: unpadded(label),
        serial: unpadded(serialNumber),
        manufacturer: unpadded(manufacturerID),
        model: unpadded(model),
        slotId: slot.readUIntLE(0, Math.min(slot.length, 6)),
      },
    ];
  } catch {
    // The token has just been removed, or this process cannot access it.
    return [];
  }
}

/** Removes padding. A token's strings have a fixed size and are padded with spaces. */
const unpadded = (text: string): string => text.replace(/[ \0]+$/, "");

/** Maximum number of tokens that a message lists. */
const maxNames = 8;

/** Lists tokens for a message. Omits tokens without a label, because they are not initialized. */
function namesOf(tokens: readonly PresentToken[]): string {
  const names = tokens
    .filter(({ label }) => label !== "")
    .map(({ label, serial }) => `${JSON.stringify(label)} (serial ${JSON.stringify(serial)})`);
  const more = names.length > maxNames ? [`and ${names.length - maxNames} more`] : [];
  return [...names.slice(0, maxNames), ...more].join(", ") || "none";
}

/**
 * Refuses to log in if another wrong PIN would lock the token. Without this check, repeated restarts with a wrong PIN
 * could lock it.
 */
function checkTries(flags: number): void {
  if ((flags & CKF.USER_PIN_LOCKED) !== 0) throw new TokenFailure("pin", "the token's user PIN is locked");
  if ((flags & CKF.USER_PIN_FINAL_TRY) !== 0) {
    throw new TokenFailure("pin", "one more wrong attempt would lock the PIN; log in with another tool first");
  }
}

/** Tries the PIN once. */
function login(module: PKCS11, session: Handle, pin: string | undefined): void {
  if (pin === undefined) {
    const ways = 'the pin option (pkcs11.pin in the signers file) or "pin-source" in the URI';
    throw new TokenFailure("pin", `the token requires a PIN; set it with ${ways}`);
  }
  try {
    module.C_Login(session, CKU.USER, pin);
  } catch (error) {
    if (returnValue(error) === "CKR_USER_ALREADY_LOGGED_IN") return;
    const { reason, message, lost } = toFailure(error);
    if (lost) throw new TokenFailure("unavailable", message);
    throw new TokenFailure(reason === "pin" || reason === "refused" ? "pin" : "login", message);
  }
}
