import { createServer } from "node:http";
import { listen, variant, expectedReplies } from "./setup.ts";

// Returns the same response to every request.
const { text, headers, contentLength, notModifiedHeaders } = await expectedReplies();
const body = Buffer.from(text);
const fullHeaders = { ...headers, "Content-Length": contentLength };

listen(
  variant === "304"
    ? createServer((_request, response) => {
        response.writeHead(304, notModifiedHeaders);
        response.end();
      })
    : createServer((_request, response) => {
        response.writeHead(200, fullHeaders);
        response.end(body);
      }),
);
