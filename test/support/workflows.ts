import { readFile } from "node:fs/promises";
import { registerHooks } from "node:module";
import { resolve } from "node:path";
import { parse } from "yaml";

interface Step {
  readonly name?: string;
  readonly id?: string;
  readonly uses?: string;
  readonly run?: string;
  readonly if?: string;
  readonly with?: Readonly<Record<string, string>>;
}

interface Job {
  readonly permissions: Readonly<Record<string, string>>;
  readonly steps: readonly Step[];
}

interface Workflow {
  readonly on: { readonly schedule?: readonly { readonly cron: string }[] };
  readonly permissions: object;
  readonly jobs: Readonly<Record<string, Job>>;
}

// It imports its schema like a bundler.
registerHooks({
  resolve(specifier, context, next) {
    const resolved = next(specifier, context);
    return resolved.url.endsWith(".json") ? { ...resolved, importAttributes: { type: "json" } } : resolved;
  },
});
const { NoOperationTraceWriter, convertWorkflowTemplate, parseWorkflow } = await import("@actions/workflow-parser");

/** Returns the errors of the forge's own parser. @see https://docs.github.com/actions/reference/workflows-and-actions/workflow-syntax */
export async function complaints(name: string, content: string): Promise<string[]> {
  const { context, value } = parseWorkflow({ name, content }, new NoOperationTraceWriter());
  if (value !== undefined) await convertWorkflowTemplate(context, value);
  return context.errors.getErrors().map(({ message }) => message);
}

/** Returns a workflow and the steps of all its jobs. @param path from the root of the project */
export async function workflow(path: string) {
  const text = await readFile(resolve(import.meta.dirname, "../..", path), "utf8");
  const { on, permissions, jobs } = parse(text) as Workflow;
  return { text, on, permissions, jobs, steps: Object.values(jobs).flatMap((job) => job.steps) };
}
