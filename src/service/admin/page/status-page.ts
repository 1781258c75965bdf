import { randomBytes } from "node:crypto";
import type { AdminPage } from "../admin.ts";
import type { Status } from "../status.ts";
import { page, pagePolicy } from "./page.ts";
import type { ServedSet } from "./served.ts";

/** Of the request for the service's own JWK Set. */
const timeoutMs = 1_000;

/** Fields of the connection, and the time of the request. */
const left: ReadonlySet<string> = new Set(["connection", "keep-alive", "date", "transfer-encoding"]);

/** The page of a service. @param jwksUrl of the JWK Set on this machine */
export function statusPage(statusOf: () => Promise<Status>, jwksUrl: string): AdminPage {
  return async () => {
    const [status, served] = await Promise.all([statusOf(), servedAt(jwksUrl)]);
    const nonce = randomBytes(16).toString("base64");
    return {
      status: 200,
      contentType: "text/html; charset=utf-8",
      text: page(status, served, nonce),
      headers: {
        "Content-Security-Policy": pagePolicy(nonce),
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
      },
    };
  };
}

/** Gets the JWK Set from the public endpoint of this service. Never rejects. */
async function servedAt(url: string): Promise<ServedSet> {
  try {
    const response = await fetch(url, { headers: { Connection: "close" }, signal: AbortSignal.timeout(timeoutMs) });
    const headers = [...response.headers].filter(([name]) => !left.has(name));
    return { status: `${response.status} ${response.statusText}`, headers, body: await response.text() };
  } catch (error) {
    const { cause, name, message } = error as Error & { readonly cause?: { readonly code?: string } };
    return { failure: name === "TimeoutError" ? `nothing within ${timeoutMs} ms` : (cause?.code ?? message) };
  }
}
