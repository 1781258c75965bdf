import { JwksdError } from "../../src/base/errors.ts";
import type { DueIssuer, ListedIssuer, Register } from "../../src/rotation/store/register.ts";

// Registers in workerd, which a test in Node.js calls.

/** A call of a register's method. */
type Call = { readonly kind: string; readonly issuer: string } & (
  | { readonly read: { readonly known?: string | undefined; readonly confirmed?: boolean | undefined } }
  | { readonly write: { readonly text: string; readonly ifVersion?: string | undefined; readonly due?: number } }
  | { readonly due: { readonly limit: number; readonly after?: DueIssuer } }
  | { readonly list: { readonly limit: number; readonly after?: ListedIssuer } }
);

/** Creates a Worker that opens a register from its bindings for each request. */
export const worker = <Env>(stores: Readonly<Record<string, (env: Env, issuer: string) => Register>>) => ({
  async fetch(request: Request, env: Env): Promise<Response> {
    const call = (await request.json()) as Call;
    const register = stores[call.kind]?.(env, call.issuer);
    try {
      const value =
        "read" in call
          ? await register?.read(call.read.known, { confirmed: call.read.confirmed })
          : "due" in call
            ? await register?.due?.(call.due.limit, call.due.after)
            : "list" in call
              ? await register?.list?.(call.list.limit, call.list.after)
              : await register?.write(call.write.text, call.write.ifVersion, { due: call.write.due });
      return Response.json({ value });
    } catch (error) {
      if (error instanceof JwksdError) return Response.json({ code: error.code, message: error.message });
      return Response.json({ message: (error as Error).message });
    }
  },
});
