import { env } from "cloudflare:workers";
import { fetchApp } from "./fetch-app.ts";
import type { Setup } from "./guards.ts";

// The API in workerd.

const { adapter, setup } = env as unknown as { readonly adapter: "check" | "hono"; readonly setup: Setup };
export default { fetch: fetchApp(setup, adapter) };
