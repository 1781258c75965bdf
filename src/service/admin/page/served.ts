import { type Html, html, lines } from "../../../base/html.ts";
import { jsonOf } from "../../../base/json.ts";
import { shellWord } from "../../../base/printable.ts";
import type { Fault } from "../faults.ts";
import { copyable, facts } from "./words.ts";

/** The response with the JWK Set, as the service itself gets it. */
export type ServedSet =
  | {
      /** "200 OK" */
      readonly status: string;
      readonly headers: readonly (readonly [name: string, value: string])[];
      readonly body: string;
    }
  | { readonly failure: string };

/** The fault of a response that relying parties would get, too. */
export function faultOfServed(answer: ServedSet, url: string): Fault | undefined {
  const what = "failure" in answer ? `does not answer: ${answer.failure}` : `answers ${answer.status}`;
  if (!("failure" in answer) && answer.status.startsWith("200 ")) return undefined;
  return {
    severity: "error",
    code: "JWKS_UNANSWERED",
    text: `Asked by this process, the JWK Set ${what}.`,
    remedy: "Look at the log, and restart the service if this lasts. This command asks as relying parties do:",
    command: `curl -i ${shellWord(url)}`,
  };
}

export function servedPart(answer: ServedSet, url: string): Html {
  if ("failure" in answer) return html`<p><code>${url}</code> does not answer: ${answer.failure}.</p>`;
  const etag = answer.headers.find(([name]) => name.toLowerCase() === "etag")?.[1] ?? "none";
  const head = [answer.status, ...answer.headers.map(([name, value]) => `${name}: ${value}`)].join("\n");
  const rows = [["Address", html`<code>${url}</code>`] as const, ["ETag", html`<code>${etag}</code>`] as const];
  return html`${facts(rows)} ${copyable("answer-head", "Head of the answer", lines(head))}
  ${copyable("answer-body", "Document", lines(indented(answer.body)))}`;
}

/** The document with blanks, easier to read. The ETag is of the bytes without them. */
function indented(body: string): string {
  const value = jsonOf(body);
  return value === undefined ? body : JSON.stringify(value, undefined, 2);
}
