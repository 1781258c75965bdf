import { codeOf } from "./errors.ts";

/** The part of an `@opentelemetry/api` span that jwksd uses. */
interface Span {
  setStatus(status: { readonly code: number; readonly message?: string }): unknown;
  end(): void;
}

interface Tracer {
  startActiveSpan<T>(name: string, options: object, work: (span: Span) => T): T;
}

interface OpenTelemetry {
  readonly trace?: { getTracer(name: string): Tracer };
}

/**
 * Global in which every copy of `@opentelemetry/api` 1.x stores the application's setup. jwksd reads it directly, so it
 * does not need to load its own copy.
 */
const registered = Symbol.for("opentelemetry.js.api.1");

/** Values of the `SpanKind` and `SpanStatusCode` enumerations. */
const client = 2;
const failed = 2;

/**
 * Runs an action in an OpenTelemetry span. If the application has not set up OpenTelemetry, runs the action without a
 * span.
 *
 * @param attributes must not contain secrets
 */
export async function traced<T>(
  name: string,
  attributes: Readonly<Record<string, string>>,
  work: () => Promise<T>,
): Promise<T> {
  const { trace } = (globalThis as { readonly [registered]?: OpenTelemetry })[registered] ?? {};
  if (trace === undefined) return work();
  return trace.getTracer("jwksd").startActiveSpan(name, { kind: client, attributes }, async (span) => {
    try {
      return await work();
    } catch (error) {
      // A message may quote external input.
      span.setStatus({ code: failed, message: codeOf(error) });
      throw error;
    } finally {
      span.end();
    }
  });
}
