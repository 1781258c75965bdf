import { toResponse } from "../../../publish/fetch.ts";
import type { GuardedRequest } from "../authorization.ts";
import type { Guard } from "../guard.ts";
import type { Auth, Requirements } from "../requirements.ts";

/** The auth of a `Request`, or the `Response` to it. */
export const fetchAdapter =
  ({ decide }: Guard) =>
  async (request: Request, requirements: Requirements): Promise<Auth | Response | undefined> => {
    const decision = await decide(fetchRequest(request, request), requirements);
    return "auth" in decision ? decision.auth : toResponse(decision.reply);
  };

/** @param source what the function `certificate` gets */
export function fetchRequest(request: Request, source: object): GuardedRequest {
  const { method, url, headers } = request;
  return {
    method,
    target: url,
    authorization: headers.get("authorization") ?? undefined,
    proof: headers.get("dpop") ?? undefined,
    source,
    raw: request,
  };
}
