import { createHash } from "node:crypto";
import { type Clock, type Moment, monotonicNow, msBetween } from "../../base/clock.ts";
import type { GuardedRequest } from "../../verify/bearer/authorization-header.ts";
import type { Described } from "./proxy-conventions.ts";

/** How long a second check counts as a check of the same request, in milliseconds. */
const sameForMs = 10_000;
const maxRequests = 100_000;

/**
 * Returns the request on which to decide. For a second check of a request with a proof, the result contains `raw` from
 * the first check, so that the proof is not treated as already used. nginx checks a request again after an internal
 * redirect, for example because of `index` or `try_files`.
 */
export type SameRequests = (described: Described, request: GuardedRequest) => GuardedRequest;

/** @param max maximum number of requests to remember */
export function createSameRequests(clock: Clock, max: number = maxRequests): SameRequests {
  const known = new Map<string, { readonly raw: object; readonly at: Moment<"monotonic"> }>();

  return ({ host, id }, request) => {
    const { method, target, authorization, proof, raw } = request;
    if (id === undefined || id === "" || proof === undefined) return request;
    const now = monotonicNow(clock);
    for (const [key, { at }] of known) {
      if (msBetween(at, now) < sameForMs && known.size < max) break;
      known.delete(key);
    }
    const key = createHash("sha256")
      .update(JSON.stringify([id, method, host, target, authorization, proof]))
      .digest("base64");
    const same = known.get(key);
    if (same !== undefined) return { ...request, raw: same.raw };
    known.set(key, { raw, at: now });
    return request;
  };
}
