import { randomBytes } from "node:crypto";
import type { AdminPage } from "../admin.ts";
import type { Status } from "../status.ts";
import { page, pagePolicy } from "./page.ts";
import type { ServedSet } from "./served-set.ts";

/** Timeout for fetching the service's own JWK Set, in milliseconds. */
const timeoutMs = 1_000;

/** Headers that the page leaves out, because they describe the connection or the time of the request. */
const hiddenHeaders: ReadonlySet<string> = new Set(["connection", "keep-alive", "date", "transfer-encoding"]);

/** Creates a service's status page. @param jwksUrl URL of the JWK Set on this machine */
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

/** Fetches the JWK Set from this service's public endpoint. Never rejects. */
async function servedAt(url: string): Promise<ServedSet> {
  try {
    const response = await fetch(url, { headers: { Connection: "close" }, signal: AbortSignal.timeout(timeoutMs) });
    const headers = [...response.headers].filter(([name]) => !hiddenHeaders.has(name));
    return { status: `${response.status} ${response.statusText}`, headers, body: await response.text() };
  } catch (error) {
    const { cause, name, message } = error as Error & { readonly cause?: { readonly code?: string } };
    return {
      failure:
        name === "TimeoutError" ? `no response within ${timeoutMs.toLocaleString("en")} ms` : (cause?.code ?? message),
    };
  }
}
