import type { Reply } from "./respond.ts";
import { type Metric, counter } from "../base/metrics.ts";

/** What a request asked for: one of the documents, or a path without one. */
export const documents = ["jwks", "discovery", "none"] as const;
const statuses = [200, 304, 404, 405, 503] as const;

/** Counts responses: two additions to an array for each, because that is all that a response may cost. */
export function createResponses() {
  const counts = new Float64Array(documents.length * statuses.length);
  const bytes = new Float64Array(documents.length);
  return {
    /** @param document index in {@link documents} */
    count(document: number, { status, body }: Reply): void {
      const index =
        document * statuses.length + (status === 200 ? 0 : status === 304 ? 1 : statuses.indexOf(status as 503));
      counts[index] = (counts[index] as number) + 1;
      if (body !== null) bytes[document] = (bytes[document] as number) + body.length;
    },
    metrics(): Metric[] {
      const values = documents.flatMap((document, row) =>
        statuses.map((status, column) => ({
          labels: { document, code: String(status) },
          value: counts[row * statuses.length + column] as number,
        })),
      );
      return [
        // Leaves out zeros of errors, and of 200 for a path without a document, which never occurs.
        counter(
          ["jwksd_responses_total", "Responses by document and status code."],
          values.filter(({ labels, value }) => value > 0 || (labels.document !== "none" && labels.code < "400")),
        ),
        counter(
          ["jwksd_response_bytes_total", "Bytes of response bodies, by document."],
          documents.map((document, row) => ({ labels: { document }, value: bytes[row] as number })),
        ),
      ];
    },
  };
}
