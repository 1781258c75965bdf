import { type Html, html, lines } from "../../../base/html.ts";
import { jsonOf } from "../../../base/json.ts";
import { shellWord } from "../../../base/printable.ts";
import type { Fault } from "../faults.ts";
import { copyable, facts } from "./elements.ts";

/** The response with the JWK Set, as received by the service itself. */
export type ServedSet =
  | {
      /** Status line, such as "200 OK". */
      readonly status: string;
      readonly headers: readonly (readonly [name: string, value: string])[];
      readonly body: string;
    }
  | { readonly failure: string };

/**
 * Returns a fault unless the response has status 200. Relying parties receive the same response, so the problem affects
 * them too.
 */
export function faultOfServed(served: ServedSet, url: string): Fault | undefined {
  const outcome = "failure" in served ? `failed: ${served.failure}` : `returned ${served.status}`;
  if (!("failure" in served) && served.status.startsWith("200 ")) return undefined;
  return {
    severity: "error",
    code: "JWKS_UNANSWERED",
    text: `This process's own request for the JWK Set ${outcome}.`,
    remedy:
      "Check this service's log. If this continues, restart the service. This command fetches the set as relying parties do:",
    command: `curl -i ${shellWord(url)}`,
  };
}

export function servedPart(served: ServedSet, url: string): Html {
  if ("failure" in served) return html`<p>The request for <code>${url}</code> failed: ${served.failure}.</p>`;
  const etag = served.headers.find(([name]) => name.toLowerCase() === "etag")?.[1] ?? "none";
  const head = [served.status, ...served.headers.map(([name, value]) => `${name}: ${value}`)].join("\n");
  const rows = [["URL", html`<code>${url}</code>`] as const, ["ETag", html`<code>${etag}</code>`] as const];
  return html`${facts(rows)} ${copyable("jwks-headers", "Response headers", lines(head))}
  ${copyable("jwks-document", "Document", lines(indented(served.body)))}`;
}

/** Indents the document for display only; the ETag refers to the bytes as served. */
function indented(body: string): string {
  const value = jsonOf(body);
  return value === undefined ? body : JSON.stringify(value, undefined, 2);
}
