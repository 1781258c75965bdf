// Signs the same text for each chunk that comes to a Unix socket, and answers with a response as long as that of a token. It reads and checks
// nothing, so no server of tokens on one thread is faster.
import { generateKeyPairSync, sign } from "node:crypto";
import { createServer } from "node:net";

const { privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
const text = Buffer.alloc(220, "a");
const head =
  "HTTP/1.1 200 OK\r\nContent-Type: application/jwt\r\nConnection: keep-alive\r\nContent-Length: 390\r\n\r\n";

const [path = ""] = process.argv.slice(2);
createServer((socket) => {
  socket.on("error", () => {});
  socket.on("data", () => {
    const signature = sign("sha256", text, privateKey).toString("base64url");
    socket.write(head + signature.padEnd(390, "a"), "latin1");
  });
}).listen(path, () => console.log("0"));
