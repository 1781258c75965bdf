// One token, logged in. Runs in the child.
import { accessSync, constants } from "node:fs";
import type * as Pkcs11js from "pkcs11js";
import type { Handle, PKCS11 } from "pkcs11js";
import { CKF, CKU } from "./constants.ts";
import { TokenFailure, failureOf, returnValue } from "./failure.ts";
import type { FoundKey, Operation, Results, TokenDescription, TokenRequest } from "./messages.ts";
import {
  type KeyPair,
  type OpenSession,
  describePair,
  destroyPair,
  findPair,
  generatePair,
  renamePair,
} from "./objects.ts";
import { SessionPool } from "./session-pool.ts";
import { type TokenSelector, nameOfToken } from "./uri.ts";

/** A token after its login. Its errors are for {@link failureOf}. */
export interface Token {
  readonly description: TokenDescription;
  /** How many sessions are open. */
  readonly sessions: number;
  run(operation: Operation): Promise<Results[keyof Results]>;
  /** To be called when nothing is under way, because modules may crash otherwise. */
  finalize(): void;
}

/** Opens a token. @param askPin called only if the token wants a PIN and a wrong one would not lock it */
export async function openToken(
  { modulePath, token, sessions }: TokenRequest,
  askPin: (token: TokenDescription) => Promise<string | undefined>,
): Promise<Token> {
  const module = await loadModule(modulePath);
  const { slot, label, serial, flags } = findToken(module, token);
  // All sessions of a process share the login, which ends with the last session.
  const first = module.C_OpenSession(slot, CKF.SERIAL_SESSION);
  if ((flags & CKF.LOGIN_REQUIRED) !== 0) {
    checkTries(flags);
    login(module, first, await askPin({ label, serial }));
  }
  const pool = new SessionPool(module, slot, sessions);
  module.C_CloseSession(first);
  const pairs: KeyPair[] = [];

  function found(session: OpenSession, pair: KeyPair): FoundKey {
    return { key: pairs.push(pair) - 1, ...describePair(session, pair) };
  }

  function pairOf(key: number): KeyPair {
    const pair = pairs[key];
    if (pair === undefined) throw new TokenFailure("key", "no such key was found before");
    return pair;
  }

  /** Runs `task` in a new session that may write; those of the pool are read-only. */
  async function writing<T>(task: (session: OpenSession) => T | Promise<T>): Promise<T> {
    const handle = module.C_OpenSession(slot, CKF.SERIAL_SESSION | CKF.RW_SESSION);
    try {
      return await task({ module, handle });
    } finally {
      try {
        module.C_CloseSession(handle);
      } catch {
        // An error of the task is the one to report.
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
          return pool.use((session) => found(session, findPair(session, operation.key)));
        case "generate":
          return writing(async (session) => found(session, await generatePair(session, operation.label, operation.id)));
        case "rename":
          return writing((session) => renamePair(session, pairOf(operation.key), operation.label, operation.id));
        default:
          return writing((session) => destroyPair(session, operation.key));
      }
    },

    finalize: () => module.C_Finalize(),
  };
}

async function loadModule(path: string): Promise<PKCS11> {
  const cannot = (why: string): TokenFailure =>
    new TokenFailure("module", `the module cannot be loaded: ${path}: ${why}`);
  let library: typeof Pkcs11js;
  try {
    ({ default: library } = (await import("pkcs11js")) as unknown as { readonly default: typeof Pkcs11js });
  } catch {
    throw new TokenFailure("package", "pkcs11js is not installed, or was not compiled");
  }
  const module = new library.PKCS11();
  try {
    accessSync(path, constants.R_OK);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw cannot(code === "ENOENT" ? "there is no such file" : `not readable (${code})`);
  }
  try {
    module.load(path);
  } catch {
    throw cannot("not a PKCS#11 module for this machine, or it lacks a library");
  }
  try {
    // The module is called from several threads.
    module.C_Initialize({ flags: CKF.OS_LOCKING_OK });
  } catch (error) {
    const { reason, message } = failureOf(error);
    const advice = "look at what the module needs: its configuration (such as SOFTHSM2_CONF), its device";
    throw new TokenFailure(reason, `${message} of ${path}; ${advice}`, true);
  }
  return module;
}

/** A present token, with all that can select it. */
type PresentToken = Required<TokenSelector> & { readonly slot: Handle; readonly flags: number };

/** The one token that matches. */
function findToken(module: PKCS11, selector: TokenSelector): PresentToken {
  const present = module.C_GetSlotList(true).flatMap((slot) => presentToken(module, slot));
  const [token, ...others] = present.filter((token) =>
    Object.entries(selector).every(([name, value]) => token[name as keyof TokenSelector] === value),
  );
  if (token === undefined) {
    throw new TokenFailure("unavailable", `${nameOfToken(selector)} is not present; present: ${namesOf(present)}`);
  }
  if (others.length > 0) {
    const several = `several tokens match ${nameOfToken(selector)}; name one by its serial`;
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
    // The token was just removed, or this process has no access to it.
    return [];
  }
}

/** Texts of a token have a fixed size, padded with blanks. */
const unpadded = (text: string): string => text.replace(/[ \0]+$/, "");

/** How many tokens a message names. */
const maxNames = 8;

/** Tokens for a message, without those that have no label, because they are not initialised. */
function namesOf(tokens: readonly PresentToken[]): string {
  const names = tokens
    .filter(({ label }) => label !== "")
    .map(({ label, serial }) => `${JSON.stringify(label)} (serial ${JSON.stringify(serial)})`);
  const more = names.length > maxNames ? [`and ${names.length - maxNames} more`] : [];
  return [...names.slice(0, maxNames), ...more].join(", ") || "none";
}

/** Refuses to log in where a wrong PIN would lock the token, so that restarts with a wrong PIN cannot lock it. */
function checkTries(flags: number): void {
  if ((flags & CKF.USER_PIN_LOCKED) !== 0) throw new TokenFailure("pin", "the user PIN of the token is locked");
  if ((flags & CKF.USER_PIN_FINAL_TRY) !== 0) {
    throw new TokenFailure("pin", "one try is left before the PIN is locked; log in with another tool first");
  }
}

/** Tries the PIN once. */
function login(module: PKCS11, session: Handle, pin: string | undefined): void {
  if (pin === undefined) {
    const ways = 'the option pin (pkcs11.pin of the signers file), or "pin-source" of the URI';
    throw new TokenFailure("pin", `it wants a PIN and none was given; give it by ${ways}`);
  }
  try {
    module.C_Login(session, CKU.USER, pin);
  } catch (error) {
    if (returnValue(error) === "CKR_USER_ALREADY_LOGGED_IN") return;
    const { reason, message, lost } = failureOf(error);
    if (lost) throw new TokenFailure("unavailable", message);
    throw new TokenFailure(reason === "pin" || reason === "refused" ? "pin" : "login", message);
  }
}
