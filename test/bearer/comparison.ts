// Sends the requests of the table to other middlewares and prints a table of their responses for docs/comparison.md. Run: node test/bearer/comparison.ts

import type { TestContext } from "node:test";
import { indented } from "../../src/cli/terminal.ts";
import { exchange, requestText } from "../support/wire.ts";
import type { Setup } from "./guards.ts";
import { type StartAdapter, nodeAdapters } from "./node-adapters.ts";
import { peers } from "./peers.ts";
import { startProviders } from "./provider.ts";
import { type Row, topics } from "./requests.ts";

/** `weak`: rejected, but with a different status or without the challenge. `none`: the feature is not supported. */
export type Verdict = "right" | "weak" | "wrong" | "none";

/** The response to a row, and its verdict. */
export interface Answer {
  readonly topic: string;
  readonly row: Row;
  /** 0 if the connection was closed without a response. */
  readonly status: number;
  readonly verdict: Verdict;
}

async function answerTo(
  port: number,
  row: Row,
  setup: Setup,
): Promise<{ readonly status: number; readonly challenge: string }> {
  const sent = requestText(row.request(setup), ["Connection", "close"], ["X-Forwarded-Proto", "https"]);
  const text = sent.replace("Host: op.example", "Host: api.example.com");
  if (row.again === true) await exchange(port, text);
  const reply = (await exchange(port, text)).toString("latin1");
  const [, status] = /^HTTP\/1\.1 (\d{3})/.exec(reply) ?? [];
  const [, challenge = ""] = /^www-authenticate: (.*)\r$/im.exec(reply) ?? [];
  return { status: Number(status ?? 0), challenge };
}

/** Returns the error codes in a challenge, joined. */
const errorsIn = (challenge: string): string =>
  Array.from(challenge.matchAll(/\b(Bearer|DPoP)\b(?! [^=]*$)|error="([^"]*)"/gi), ([, , error]) => error ?? "").join(
    "",
  );

function verdictOf({ expected, lenient }: Row, { status, challenge }: { status: number; challenge: string }): Verdict {
  if (status === 404) return "none";
  if (expected.status === 200) return status === 200 ? "right" : "wrong";
  if (status === 200 && lenient) return "weak";
  if (status === 200 || status === 0 || (expected.status === 503 ? status < 500 : status >= 500)) return "wrong";
  if (expected.status === 503) return status === 503 ? "right" : "weak";
  const isSame = errorsIn(challenge) === errorsIn(expected.challenge) && /^(Bearer|DPoP)/i.test(challenge);
  return status === expected.status && isSame ? "right" : "weak";
}

/** Returns one middleware's responses to all rows. */
export async function answersOf(t: Pick<TestContext, "after">, start: StartAdapter): Promise<Answer[]> {
  const setup = await startProviders(t);
  const port = await start(t as TestContext, setup);
  const answers: Answer[] = [];
  for (const [topic, rows] of Object.entries(topics)) {
    for (const row of rows) {
      const answer = await answerTo(port, row, setup);
      answers.push({ topic, row, status: answer.status, verdict: verdictOf(row, answer) });
    }
  }
  return answers;
}

const tableRow = (cells: readonly string[]): string => `| ${cells.join(" | ")} |`;

/** Returns the page's table and the list of wrong responses. */
export function comparisonOf(all: Readonly<Record<string, readonly Answer[]>>): string {
  const names = Object.keys(all);
  const verdicts: readonly Verdict[] = ["right", "weak", "wrong", "none"];
  const count = (answers: readonly Answer[], topic: string | undefined): string =>
    verdicts
      .map(
        (verdict) =>
          answers.filter((answer) => answer.verdict === verdict && (topic === undefined || answer.topic === topic))
            .length,
      )
      .join(" / ");
  const table = [
    tableRow(["right / weak / wrong / not supported", ...names]),
    tableRow(["---", ...names.map(() => "---")]),
    ...Object.keys(topics).map((topic) => tableRow([topic, ...names.map((name) => count(all[name] ?? [], topic))])),
    tableRow(["all", ...names.map((name) => count(all[name] ?? [], undefined))]),
  ];
  const faults = names
    .map((name) => {
      const wrong = (all[name] ?? []).filter(({ verdict }) => verdict === "wrong");
      return [
        name,
        wrong.map(({ row, status }) => `${row.name} (${status === 0 ? "no response" : status})`).join("; "),
      ] as const;
    })
    .filter(([, wrong]) => wrong !== "")
    .flatMap(([name, wrong]) => indented(`**${name}**: ${wrong}.`, 140, 2))
    .map((text) => text.replace(/^ {2}(?=\*\*)/, "- "));
  return [...table, "", "Each middleware's wrong responses, with their status:", "", ...faults].join("\n");
}

export async function compare(t: Pick<TestContext, "after">): Promise<string> {
  const guard = nodeAdapters["Express 5"] as StartAdapter;
  const all: Record<string, readonly Answer[]> = {};
  for (const [name, start] of Object.entries({ "jwksd/bearer": guard, ...peers }))
    all[name] = await answersOf(t, start);
  return comparisonOf(all);
}

if (import.meta.main) {
  const ends: (() => unknown)[] = [];
  console.log(await compare({ after: (end: () => unknown) => void ends.push(end) }));
  for (const end of ends) await end();
}
