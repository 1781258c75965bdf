import { examine } from "jwksd/doctor";

const response = await fetch("https://login.example.com/jwks");
const body = new Uint8Array(await response.arrayBuffer());
const set = { url: response.url, status: response.status, headers: [...response.headers], body };
for (const { severity, code, seen, remedy } of await examine({ at: Date.now(), set })) {
  console.log(severity, code, seen, remedy);
}
