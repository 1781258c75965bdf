import { env } from "cloudflare:workers";
import { JwksdError } from "../../src/base/errors.ts";
import { storeOf as d1 } from "../../examples/docs/store-d1.mts";
import { storeOf as durableObject } from "../../examples/docs/store-durable-object.mts";
import type { D1Binding } from "../../src/rotation/store/databases/d1.ts";
import type { DurableObjectNamespace } from "../../src/rotation/store/databases/durable-object.ts";

export { KeysObject } from "../../examples/docs/store-durable-object.mts";

// Registers of workerd for a test in Node.js, which asks for each call.

const bindings = env as unknown as { readonly DB: D1Binding; readonly KEYS: DurableObjectNamespace };

/** What is asked: a method of a register, and what it takes. */
export type Call = { readonly kind: "d1" | "durable-object"; readonly issuer: string } & (
  | { readonly read: { readonly known?: string | undefined; readonly confirmed?: boolean | undefined } }
  | { readonly write: { readonly text: string; readonly ifVersion?: string | undefined } }
);

export default {
  async fetch(request: Request): Promise<Response> {
    const call = (await request.json()) as Call;
    const { kind, issuer } = call;
    const register = kind === "d1" ? d1(bindings, issuer) : durableObject(bindings, issuer);
    try {
      const value =
        "read" in call
          ? await register.read(call.read.known, { confirmed: call.read.confirmed })
          : await register.write(call.write.text, call.write.ifVersion);
      return Response.json({ value });
    } catch (error) {
      if (error instanceof JwksdError) return Response.json({ code: error.code, message: error.message });
      return Response.json({ message: (error as Error).message });
    }
  },
};
