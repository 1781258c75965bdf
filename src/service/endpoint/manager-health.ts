import type { ManagerEvent } from "../../rotation/manager/types.ts";
import { type ManagerHealth, knownError } from "../admin/known.ts";

export const healthy: ManagerHealth = { heldBack: {}, unopened: {}, undestroyed: {} };

/** The health of a manager after one of its events. */
export function healthAfter(health: ManagerHealth, event: ManagerEvent, at: number): ManagerHealth {
  switch (event.type) {
    case "failed":
      return { ...health, failure: knownError(event.error, health.failure?.at ?? at) };
    case "fenced":
      return { ...health, fencedAt: at };
    case "recovered":
      return { ...health, failure: undefined, fencedAt: undefined };
    case "changed":
      // Those that still cannot be opened or cannot sign are told again after this.
      return { ...health, heldBack: {}, unopened: {} };
    case "held-back":
      return { ...health, heldBack: { ...health.heldBack, [event.kid]: knownError(event.error, at) } };
    case "unopened":
      return { ...health, unopened: { ...health.unopened, [event.kid]: knownError(event.error, at) } };
    case "destroyed": {
      const { [event.kid]: _, ...others } = health.undestroyed;
      const undestroyed = event.error === undefined ? others : { ...others, [event.kid]: knownError(event.error, at) };
      return { ...health, undestroyed };
    }
    default:
      return health;
  }
}
