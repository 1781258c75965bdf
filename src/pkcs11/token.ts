// One token, logged in. Runs in the child.
import { accessSync, constants } from "node:fs";
import { createRequire } from "node:module";
import type * as Pkcs11js from "pkcs11js";
import type { Handle, PKCS11 } from "pkcs11js";
import { CKF, CKU } from "./constants.ts";
import { TokenFailure, failureOf, returnValue } from "./failures.ts";
import type { FoundKey, Operation, Results, StartMessage, TokenDescription, TokenSelector } from "./messages.ts";
import { tokenName } from "./names.ts";
import { type KeyObjects, describeKey, destroyKey, findKey, generateKey, renameKey } from "./objects.ts";
import { SessionPool } from "./session-pool.ts";

/** How many tokens a message names. */
const maxNames = 8;

/** A token that is ready to sign. */
export class Token {
  readonly description: TokenDescription;
  readonly #module: PKCS11;
  readonly #slot: Handle;
  readonly #pool: SessionPool;
  readonly #keys: KeyObjects[] = [];
  readonly #pinned = new Set<unknown>();

  /**
   * Throws {@link TokenFailure}.
   *
   * @param askPin asked only where the token wants a PIN and a try is safe
   */
  static async open(
    { modulePath, token, sessions }: StartMessage,
    askPin: (token: TokenDescription) => Promise<string | undefined>,
  ): Promise<Token> {
    const module = loadModule(modulePath);
    // Operations run on several threads.
    try {
      module.C_Initialize({ flags: CKF.OS_LOCKING_OK });
    } catch (error) {
      const { reason, message } = failureOf(error, `C_Initialize of ${modulePath}`);
      throw new TokenFailure(
        reason,
        `${message}; look at what the module needs: its configuration (such as SOFTHSM2_CONF), its device`,
        true,
      );
    }
    const slot = findSlot(module, token);
    const { label, serialNumber, flags } = named("C_GetTokenInfo", () => module.C_GetTokenInfo(slot));
    const description = { label: unpadded(label), serial: unpadded(serialNumber) };
    // All sessions of a process share the login, which ends with the last of them.
    const first = named("C_OpenSession", () => module.C_OpenSession(slot, CKF.SERIAL_SESSION));
    if ((flags & CKF.LOGIN_REQUIRED) !== 0) {
      checkTries(flags);
      login(module, first, await askPin(description));
    }
    const opened = new Token(module, slot, description, sessions);
    module.C_CloseSession(first);
    return opened;
  }

  private constructor(module: PKCS11, slot: Handle, description: TokenDescription, sessions: number) {
    this.#module = module;
    this.#slot = slot;
    this.description = description;
    this.#pool = named("C_OpenSession", () => new SessionPool(module, slot, sessions));
  }

  async run<K extends Operation["kind"]>(operation: Extract<Operation, { kind: K }>): Promise<Results[K]>;
  async run(operation: Operation): Promise<Results[keyof Results]> {
    switch (operation.kind) {
      case "sign":
        return this.#pool.sign(this.#key(operation.key).privateKey, operation.digest);
      case "find":
        return this.#pool.use((session) =>
          named("C_FindObjects", () => this.#describe(session, findKey(this.#module, session, operation.key))),
        );
      case "generate":
        return this.#writing("C_GenerateKeyPair", async (session) =>
          this.#describe(
            session,
            await generateKey(this.#module, session, operation.label, operation.id, this.#pinned),
          ),
        );
      case "rename":
        return this.#writing("C_SetAttributeValue", (session) =>
          renameKey(this.#module, session, this.#key(operation.key), operation.label, operation.id),
        );
      default:
        return this.#writing("C_DestroyObject", (session) => destroyKey(this.#module, session, operation.key));
    }
  }

  /** Only with nothing under way: a module that is finalised while it works may do anything. */
  finalize(): void {
    this.#module.C_Finalize();
  }

  #describe(session: Handle, objects: KeyObjects): FoundKey {
    const number = this.#keys.push(objects) - 1;
    return describeKey(this.#module, session, number, objects);
  }

  #key(number: number): KeyObjects {
    const key = this.#keys[number];
    if (key === undefined) throw new TokenFailure("missing", "no such key was found before");
    return key;
  }

  /** In a session of its own, since those for signing are for reading only. */
  async #writing<T>(functionName: string, task: (session: Handle) => T | Promise<T>): Promise<T> {
    const session = named("C_OpenSession", () =>
      this.#module.C_OpenSession(this.#slot, CKF.SERIAL_SESSION | CKF.RW_SESSION),
    );
    try {
      return await task(session);
    } catch (error) {
      throw asTokenFailure(error, functionName);
    } finally {
      try {
        this.#module.C_CloseSession(session);
      } catch {
        // What went wrong before matters more.
      }
    }
  }
}

function loadModule(path: string): PKCS11 {
  let library: typeof Pkcs11js;
  try {
    library = createRequire(import.meta.url)("pkcs11js") as typeof Pkcs11js;
  } catch {
    throw new TokenFailure("package", "pkcs11js is not installed, or was not compiled");
  }
  const module = new library.PKCS11();
  try {
    accessSync(path, constants.R_OK);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new TokenFailure(
      "module",
      `${path}: ${code === "ENOENT" ? "there is no such file" : `not readable (${code})`}`,
    );
  }
  try {
    module.load(path);
  } catch {
    throw new TokenFailure("module", `${path}: not a PKCS#11 module for this machine, or it lacks a library`);
  }
  return module;
}

/**
 * Where a wrong PIN would lock the token, none is tried: a service that is started again and again with a wrong one stops there.
 */
function checkTries(flags: number): void {
  if ((flags & CKF.USER_PIN_LOCKED) !== 0) throw new TokenFailure("pin", "the user PIN of the token is locked");
  if ((flags & CKF.USER_PIN_FINAL_TRY) !== 0) {
    throw new TokenFailure("pin", "one try is left before the PIN is locked; log in with another tool first");
  }
}

/** Tries the PIN once. */
function login(module: PKCS11, session: Handle, pin: string | undefined): void {
  if (pin === undefined) {
    const ways =
      '--pin-file or --pin-variable of jwksd signer check, the option pin (pkcs11.pin of the signers file) or "pin-source" of the URI';
    throw new TokenFailure("pin", `it wants a PIN and none was given; give it by ${ways}`);
  }
  try {
    module.C_Login(session, CKU.USER, pin);
  } catch (error) {
    if (returnValue(error) === "CKR_USER_ALREADY_LOGGED_IN") return;
    const { reason, message, lost } = failureOf(error, "C_Login");
    if (lost) throw new TokenFailure("unavailable", message);
    throw new TokenFailure(reason === "pin" || reason === "refused" ? "pin" : "login", message);
  }
}

/** The slot of the one token that matches. */
function findSlot(module: PKCS11, selector: TokenSelector): Handle {
  const slots = named("C_GetSlotList", () => module.C_GetSlotList(true));
  const wanted = slots.filter((slot) => isWanted(module, slot, selector));
  const [slot, another] = wanted;
  if (slot === undefined) {
    throw new TokenFailure("unavailable", `${tokenName(selector)} is not present; present: ${namesOf(module, slots)}`);
  }
  if (another !== undefined) {
    const several = `several tokens match ${tokenName(selector)}; name one by its serial`;
    throw new TokenFailure("ambiguous", `${several}: ${namesOf(module, wanted)}`);
  }
  return slot;
}

/** The tokens that are there, for a message; one without a label was not set up yet. */
function namesOf(module: PKCS11, slots: readonly Handle[]): string {
  const names = slots.flatMap((slot) => {
    try {
      const { label, serialNumber } = module.C_GetTokenInfo(slot);
      const name = `${JSON.stringify(unpadded(label))} (serial ${JSON.stringify(unpadded(serialNumber))})`;
      return unpadded(label) === "" ? [] : [name];
    } catch {
      return [];
    }
  });
  const more = names.length > maxNames ? [`and ${names.length - maxNames} more`] : [];
  return names.length === 0 ? "none" : [...names.slice(0, maxNames), ...more].join(", ");
}

function isWanted(module: PKCS11, slot: Handle, wanted: TokenSelector): boolean {
  try {
    const info = module.C_GetTokenInfo(slot);
    const pairs: [wanted: string | number | undefined, is: string | number][] = [
      [wanted.label, unpadded(info.label)],
      [wanted.serial, unpadded(info.serialNumber)],
      [wanted.manufacturer, unpadded(info.manufacturerID)],
      [wanted.model, unpadded(info.model)],
      [wanted.slotId, slot.readUIntLE(0, Math.min(slot.length, 6))],
    ];
    return pairs.every(([wanted, is]) => wanted === undefined || wanted === is);
  } catch {
    // One that was just taken out, or that this process may not see.
    return false;
  }
}

/** Fixed-size texts of a token are padded with blanks. */
const unpadded = (text: string): string => text.replace(/[ \0]+$/, "");

function named<T>(functionName: string, call: () => T): T {
  try {
    return call();
  } catch (error) {
    throw asTokenFailure(error, functionName);
  }
}

function asTokenFailure(error: unknown, functionName: string): TokenFailure {
  const { reason, message, lost } = failureOf(error, functionName);
  return new TokenFailure(reason, message, lost);
}
