// A bare node:http server on a Unix socket that returns each request's body.

import { createServer } from "node:http";

const [path = ""] = process.argv.slice(2);
createServer((request, response) => {
  const chunks: Buffer[] = [];
  request.on("data", (chunk: Buffer) => chunks.push(chunk));
  request.on("end", () => {
    const body = Buffer.concat(chunks);
    response.writeHead(200, { "Content-Type": "application/json", "Content-Length": body.length });
    response.end(body);
  });
}).listen(path, () => console.log("0"));
