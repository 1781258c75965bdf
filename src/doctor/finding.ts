import { type Break, breaks } from "./breaks.ts";
import { type Code, type Severity, codes, ruleUrl } from "./codes.ts";

/** Where the paragraphs about the codes are. */
const page = "https://github.com/jwksd/jwksd/blob/main/docs/doctor.md";

/** One thing that is wrong, wherever it was seen. Texts may hold what a stranger chose: escape them before they are printed. */
export interface Finding {
  readonly code: Code;
  readonly severity: Severity;
  /** What is wrong, in a few words. */
  readonly title: string;
  /** What was seen, and where: at most 10 of {@link count}. Never a private member, nor a part of a body. */
  readonly seen: readonly string[];
  readonly count: number;
  /** The rule that is broken, with its section. */
  readonly rule: string;
  readonly ruleUrl: string | undefined;
  /** Verifiers that are shown to fail, by a test or a public issue. Others may fail, too. */
  readonly breaks: readonly Break[];
  /** What to do, in one sentence. */
  readonly remedy: string;
  /** A paragraph about the code. */
  readonly link: string;
}

/** What a check has seen. */
export interface Note {
  readonly code: Code;
  readonly seen: string;
}

export const note = (code: Code, seen: string): Note => ({ code, seen });

const order: readonly Severity[] = ["broken", "risk", "advice"];
const maxSeen = 10;

/** Findings from notes: one for each code, worst first, else in the order of the table. */
export function findings(notes: readonly Note[]): Finding[] {
  const byCode = new Map<Code, string[]>();
  for (const { code, seen } of notes) {
    const list = byCode.get(code);
    if (list === undefined) byCode.set(code, [seen]);
    else list.push(seen);
  }
  return order.flatMap((severity) =>
    (Object.keys(codes) as Code[])
      .filter((code) => codes[code].severity === severity && byCode.has(code))
      .map((code) => finding(code, byCode.get(code) ?? [])),
  );
}

function finding(code: Code, seen: readonly string[]): Finding {
  const { severity, title, rule, remedy } = codes[code];
  return {
    code,
    severity,
    title,
    seen: seen.slice(0, maxSeen),
    count: seen.length,
    rule,
    ruleUrl: ruleUrl(rule),
    breaks: breaks[code] ?? [],
    remedy,
    link: `${page}#${code.toLowerCase()}`,
  };
}

/** At least as bad as another. */
export const atLeast = (one: Severity, other: Severity): boolean => order.indexOf(one) <= order.indexOf(other);
