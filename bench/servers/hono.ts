import { serve } from "@hono/node-server";
import { Hono } from "hono";
import { listening, expectedReplies } from "./setup.ts";

const { text, etag, headers, notModifiedHeaders } = await expectedReplies();

const app = new Hono();
app.get("/jwks", (context) =>
  context.req.header("if-none-match") === etag
    ? context.body(null, 304, notModifiedHeaders)
    : context.body(text, 200, headers),
);
serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" }, ({ port }) => listening(port));
