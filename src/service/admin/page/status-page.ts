import { randomBytes } from "node:crypto";
import type { ServedSet } from "./served.ts";
import { page, pagePolicy } from "./page.ts";
import type { AdminPage } from "../admin.ts";
import type { Status } from "../status.ts";

// An import would load undici as well.
const { get } = process.getBuiltinModule("node:http");

/** Bounds of the request for the service's own JWK Set. */
const limits = { timeoutMs: 1_000, maxBytes: 1_048_576 } as const;

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
function servedAt(url: string): Promise<ServedSet> {
  return new Promise((resolve) => {
    const fail = ({ code, message }: NodeJS.ErrnoException): void =>
      resolve({ failure: code === "ABORT_ERR" ? `nothing within ${limits.timeoutMs} ms` : (code ?? message) });
    const request = get(url, { agent: false, signal: AbortSignal.timeout(limits.timeoutMs) }, (response) => {
      let body = "";
      response.setEncoding("utf8").on("error", fail);
      response.on("data", (text: string) => {
        body += text;
        if (body.length > limits.maxBytes) request.destroy(new Error("its answer is longer than 1 MiB"));
      });
      response.on("end", () => {
        const { statusCode = 0, statusMessage = "", rawHeaders } = response;
        const pairs = rawHeaders.flatMap((name, index) =>
          index % 2 === 0 ? [[name, rawHeaders[index + 1] ?? ""] as const] : [],
        );
        const headers = pairs.filter(([name]) => !left.has(name.toLowerCase()));
        resolve({ status: `${statusCode} ${statusMessage}`, headers, body });
      });
    });
    request.on("error", fail);
  });
}
