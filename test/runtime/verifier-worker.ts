import { env } from "cloudflare:workers";
import { type KeySetState, type RemoteKeySet, createRemoteKeySet } from "../../src/verify/relying-party/index.ts";
import { verifyByBoth } from "../support/verifier.ts";

interface Settings {
  readonly issuer: string;
  readonly audience: string;
  readonly madeBy: "module" | "first request";
  readonly state: KeySetState | null;
  readonly timeoutMs: number;
}

const { issuer, audience, madeBy, state, timeoutMs } = (env as unknown as { readonly settings: Settings }).settings;
const make = (): RemoteKeySet => createRemoteKeySet({ issuer, state: state ?? undefined, timeoutMs });
let keys = madeBy === "module" ? make() : undefined;

/** Verifies the token that it is sent, or answers before it knows if the path is /give-up; a GET gives the state of its key set. */
export default {
  async fetch(request: Request): Promise<Response> {
    keys ??= make();
    if (request.method === "GET") return Response.json(keys.state());
    const verification = verifyByBoth(await request.text(), keys, { issuer, audience });
    const answer = verification.then(
      () => new Response("verified"),
      (error: Error & { code?: string }) => new Response(error.code ?? error.message, { status: 401 }),
    );
    return request.url.endsWith("/give-up") ? new Response("gave up") : answer;
  },
};
