import type { Server, ServerResponse } from "node:http";
import { createRequire } from "node:module";
import type { AddressInfo } from "node:net";
import { listening, expectedReplies } from "./setup.ts";

interface Response extends ServerResponse {
  set(headers: Readonly<Record<string, string>>): this;
  status(code: number): this;
  send(body: Buffer): this;
}
interface Application {
  disable(setting: string): void;
  get(path: string, handle: (request: { get(name: string): string | undefined }, response: Response) => void): void;
  listen(port: number, host: string, listening: () => void): Server;
}

// Express has no types.
const express = createRequire(import.meta.url)("express") as () => Application;

const { text, etag, headers, notModifiedHeaders } = await expectedReplies();
const body = Buffer.from(text);

const app = express();
app.disable("x-powered-by");
app.get("/jwks", (request, response) => {
  if (request.get("if-none-match") === etag) response.status(304).set(notModifiedHeaders).end();
  else response.set(headers).send(body);
});
const server = app.listen(0, "127.0.0.1", () => listening((server.address() as AddressInfo).port));
