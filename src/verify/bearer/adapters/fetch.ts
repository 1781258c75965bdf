import { toResponse } from "../../../publish/web-response.ts";
import type { Decide } from "../access-decision.ts";
import type { GuardedRequest } from "../authorization-header.ts";
import type { VerifiedAccessToken } from "../requirements.ts";

/** Returns the auth of a `Request`, or the `Response` to send. */
export async function checkRequest(
  decide: Decide,
  request: Request,
): Promise<VerifiedAccessToken | Response | undefined> {
  const decision = await decide(fetchRequest(request, request));
  return "auth" in decision ? decision.auth : toResponse(decision.reply);
}

/** Returns the part of a `Request` that the guard reads. @param source the request as the framework passes it */
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
