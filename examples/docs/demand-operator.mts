import { env } from "cloudflare:workers";
import { createKeyManager, planRotation } from "jwksd/rotation";
import { d1Store } from "jwksd/store/d1";

const issuer = "https://login.example.com";
const store = d1Store(env.DB, { issuer });
const keys = await createKeyManager({ issuer, store, wrappingKeys: env.WRAPPING_KEYS, onDemand: true });

const commands: Readonly<Record<string, (kid: string) => Promise<unknown>>> = {
  "GET ": () => keys.runDueSteps(),
  "POST rotate": () => keys.rotate(),
  "POST rotate-now": () => keys.rotate({ now: true }),
  "POST roll-back": () => keys.rollBack(),
  "POST rewrap": () => keys.rewrap(),
  "POST revoke": (kid) => keys.revoke(kid),
  "POST decommission": () => keys.decommission(),
  "POST decommission-now": () => keys.decommission({ now: true }),
};

async function hash(text: string): Promise<string> {
  return String(new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text))));
}

/** Compares hashes, because the time that a comparison takes reveals how long the matching prefix is. */
async function isOperator(request: Request): Promise<boolean> {
  const secret: string = env.OPERATOR_SECRET ?? "";
  const sent = request.headers.get("Authorization") ?? "";
  return secret.length >= 32 && (await hash(sent)) === (await hash(`Bearer ${secret}`));
}

/** Returns the keys and the next steps. */
function report() {
  const now = Date.now();
  return {
    keys: keys.records.map(({ kid, use, state }) => ({ kid, use, state })),
    steps: planRotation(keys.records, keys.policy, now).steps.map(({ at, action, use, kid, reason }) => ({
      at: new Date(at),
      action,
      use,
      kid,
      reason,
    })),
  };
}

export default {
  async fetch(request: Request): Promise<Response> {
    if (!(await isOperator(request))) return new Response("wrong secret\n", { status: 401 });
    const [, name = "", kid = ""] = new URL(request.url).pathname.split("/");
    const command = commands[`${request.method} ${name}`];
    if (command === undefined) return new Response("no such command\n", { status: 404 });
    try {
      await command(kid);
      return Response.json(report());
    } catch (error) {
      return new Response(error instanceof Error ? error.message : "failed", { status: 500 });
    }
  },
};
