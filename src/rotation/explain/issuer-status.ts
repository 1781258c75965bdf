import type { Clock } from "../../base/clock.ts";
import { StoreError, asJwksdError } from "../../base/errors.ts";
import { createCustody } from "../custody/custody.ts";
import { ownedBy } from "../custody/issuer-check.ts";
import type { WrappingKeys } from "../custody/key-wrapping.ts";
import { readRegister } from "../custody/read-register.ts";
import { type DueStep, dueSteps } from "../rules/due.ts";
import { type KeyUse, type LiveState, isDecommissioned, liveRecords } from "../rules/key-records.ts";
import { issuerKey } from "../store/issuer-hash.ts";
import type { ListedIssuer, Register } from "../store/register.ts";

/** Time after which a due step counts as overdue. It allows for `runAllDueSteps` being called only once an hour. */
const overdueMs = 2 * 3_600_000;

/**
 * - `ok`: its steps are taken on time
 * - `overdue`: its next step has been due for more than two hours
 * - `decommissioned`: no process signs for it
 * - `failing`: its keys cannot be read or managed
 */
type IssuerState = "ok" | "overdue" | "decommissioned" | "failing";

/** An issuer's key that is published or used for decryption. */
interface IssuerKey {
  readonly kid: string;
  readonly use: KeyUse;
  readonly state: LiveState;
}

/** An issuer in the database, and the state of its keys. Plain JSON, without secrets. */
export interface IssuerStatus extends ListedIssuer {
  readonly state: IssuerState;
  /** The issuer's announced, active and retiring keys. Empty if they cannot be read. */
  readonly keys: readonly IssuerKey[];
  /** The step that comes next. */
  readonly nextStep?: DueStep | undefined;
  /** Reason why the issuer is failing. */
  readonly error?: { readonly code: string; readonly message: string } | undefined;
}

/** Reads and verifies an issuer's keys. Errors are part of the result. */
export async function issuerStatus(
  { issuer, key }: ListedIssuer,
  open: (issuer: string) => Register | Promise<Register>,
  wrappingKeys: WrappingKeys,
  clock: Clock,
): Promise<IssuerStatus> {
  try {
    await checkName({ issuer, key });
    const register = await open(issuer);
    const { text = "", now = clock.now() } = await readRegister(register);
    const custody = createCustody({ register, keys: wrappingKeys, issuerCheck: ownedBy(issuer) });
    const { records, policy } = await custody.open(text);
    const keys = liveRecords(records).map(({ kid, use, state }) => ({ kid, use, state }));
    const [nextStep] = dueSteps(records, policy).toSorted((one, other) => startOf(one) - startOf(other));
    const isOverdue = nextStep !== undefined && now - startOf(nextStep) > overdueMs;
    const state = isOverdue ? "overdue" : isDecommissioned(records) ? "decommissioned" : "ok";
    return { issuer, key, state, keys, nextStep };
  } catch (error) {
    const { code, message } = asJwksdError(error);
    return { issuer, key, state: "failing", keys: [], error: { code, message } };
  }
}

/**
 * Returns the time at which a step is due. If its waiting period has not begun, returns the time at which the step
 * became blocked.
 */
export const startOf = ({ at, blockedSince = 0 }: DueStep): number => at ?? blockedSince;

/**
 * Rejects a row that has the name of a different issuer, because anyone who can write to the store could hide an issuer
 * that way.
 *
 * @throws StoreError `ERR_STORE_NOT_AUTHENTIC`
 */
export async function checkName({ issuer, key }: ListedIssuer): Promise<void> {
  if (key === (await issuerKey(issuer))) return;
  throw new StoreError(
    "ERR_STORE_NOT_AUTHENTIC",
    `the row ${JSON.stringify(key)} has another issuer's name; restore it from a backup`,
  );
}
