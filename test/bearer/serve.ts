import { fetchApp } from "./fetch-app.ts";
import type { Setup } from "./guards.ts";

// The API in Bun and Deno: the adapter and the providers are arguments. It prints its port.

declare const Bun: { serve(options: object): { readonly port: number } } | undefined;
declare const Deno: {
  readonly args: readonly string[];
  serve(options: object, handler: (request: Request) => Promise<Response>): unknown;
};

const isBun = typeof Bun !== "undefined";
const [adapter, setup] = isBun ? process.argv.slice(2) : Deno.args;
const app = fetchApp(JSON.parse(setup ?? "") as Setup, adapter as "check" | "hono");

if (isBun) console.log(Bun?.serve({ port: 0, hostname: "127.0.0.1", fetch: app }).port);
else Deno.serve({ port: 0, hostname: "127.0.0.1", onListen: ({ port }: { port: number }) => console.log(port) }, app);
