import { createServer } from "node:http";
import { listen, variant, wantedReply } from "./setup.ts";

// One reply, whatever is asked.
const { text, headers, contentLength, notModifiedHeaders } = await wantedReply();
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
