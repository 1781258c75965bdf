import { env } from "cloudflare:workers";
import { type KeySetState, type RemoteKeySet, createRemoteKeySet } from "../../src/verify/relying-party/index.ts";
import { verifyByBoth } from "../support/verifier.ts";

interface Settings {
  readonly issuer: string;
  readonly audience: string;
  readonly createdBy: "module" | "first request";
  readonly state: KeySetState | null;
  readonly timeoutMs: number;
}

const { issuer, audience, createdBy, state, timeoutMs } = (env as unknown as { readonly settings: Settings }).settings;
const create = (): RemoteKeySet => createRemoteKeySet({ issuer, state: state ?? undefined, timeoutMs });
let keys = createdBy === "module" ? create() : undefined;

/** Verifies the token in the body; at /give-up, responds without waiting. For a GET, returns the state of the key set. */
export default {
  async fetch(request: Request): Promise<Response> {
    keys ??= create();
    if (request.method === "GET") return Response.json(keys.state());
    const verification = verifyByBoth(await request.text(), keys, { issuer, audience });
    const answer = verification.then(
      () => new Response("verified"),
      (error: Error & { code?: string }) => new Response(error.code ?? error.message, { status: 401 }),
    );
    return request.url.endsWith("/give-up") ? new Response("gave up") : answer;
  },
};
