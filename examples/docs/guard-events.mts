import { createBearerGuard } from "jwksd/bearer";

export const bearer = createBearerGuard({
  issuer: "https://login.example.com",
  audience: "https://api.example.com",
  onEvent(event) {
    if (event.type === "refused") console.log(`${event.method} ${event.path}: ${event.status}, ${event.reason}`);
    if (event.type === "failed") console.error("returned 503:", event.cause);
    if (event.type === "key-set" && event.event.type === "failed")
      console.error(`no keys from ${event.issuer}: ${event.event.error.message}`);
  },
});
