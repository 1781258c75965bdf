import { type Metric, counter } from "../base/metrics.ts";
import type { Reply } from "./respond.ts";

/** Possible targets of a request: the documents, and any path without a document. */
export const documents = ["jwks", "discovery", "none"] as const;
const statuses = [200, 304, 404, 405, 503] as const;

/** Creates counters for responses. Counting a response only increments an array element. */
export function createResponses() {
  const counts = new Float64Array(documents.length * statuses.length);
  return {
    /** @param document index in {@link documents} */
    count(document: number, { status }: Reply): void {
      const index =
        document * statuses.length + (status === 200 ? 0 : status === 304 ? 1 : statuses.indexOf(status as 503));
      counts[index] = (counts[index] as number) + 1;
    },
    metrics(): Metric[] {
      const values = documents.flatMap((document, row) =>
        statuses.map((status, column) => ({
          labels: { document, code: String(status) },
          value: counts[row * statuses.length + column] as number,
        })),
      );
      return [
        // Omits errors that have not occurred, and 200 for a path without a document, which cannot occur.
        counter(
          ["jwksd_responses_total", "Responses by document and status code."],
          values.filter(({ labels, value }) => value > 0 || (labels.document !== "none" && labels.code < "400")),
        ),
      ];
    },
  };
}
