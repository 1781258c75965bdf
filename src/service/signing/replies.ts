import { ConfigError, JwksdError, TokenError, codeOf } from "../../base/errors.ts";
import { problemDetails } from "../../publish/respond.ts";
import { TooLong } from "./body.ts";

/** A whole response. */
export interface SignReply {
  readonly status: number;
  readonly contentType: string;
  readonly text: string;
  /** Name, value, name, value. */
  readonly headers?: readonly string[];
}

/** Where a call may succeed later: within a second, a manager that was stale has asked its store again. */
const retryAfter = ["Retry-After", "1"];

const titles: Readonly<Record<number, string>> = {
  400: "Bad Request",
  403: "Forbidden",
  404: "Not Found",
  405: "Method Not Allowed",
  413: "Content Too Large",
  500: "Internal Server Error",
  503: "Service Unavailable",
};

/** An error as problem details. @param more see {@link problemDetails} */
export function problem(status: number, detail: string, more: object = {}, headers: readonly string[] = []): SignReply {
  return { status, ...problemDetails(status, titles[status] ?? "", detail, more), headers };
}

/** The problem of an error, with its `code` and whether it is `retryable`. An unknown error may quote anything, so nothing of it is told. */
export function problemOf(error: unknown): SignReply {
  if (!(error instanceof JwksdError)) {
    return problem(500, "something failed in an unknown way", { code: codeOf(error), retryable: false });
  }
  const { code, retryable, message } = error;
  return problem(statusOf(error), message, { code, retryable }, retryable ? retryAfter : []);
}

/** @see RFC 9110 section 15 */
function statusOf(error: JwksdError): number {
  if (error.retryable) return 503;
  if (error instanceof TooLong) return 413;
  if (error.code === "ERR_CLAIMS_FORBIDDEN") return 403;
  return error instanceof TokenError || error instanceof ConfigError ? 400 : 500;
}
