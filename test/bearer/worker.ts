// @ts-expect-error There are no types for it here.
import { env } from "cloudflare:workers";
import { fetchApp } from "./fetch-app.ts";
import type { Setup } from "./guards.ts";

// The API in workerd.

const { face, setup } = env as { readonly face: "check" | "hono"; readonly setup: Setup };
export default { fetch: fetchApp(setup, face) };
