import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { createBearerGuard } from "jwksd/bearer";

// A folder that no one else can write to: anyone who can write to it chooses the keys. On Lambda: /tmp
const folder = "/var/lib/orders";
const fileOf = (issuer: string) => `${folder}/${encodeURIComponent(issuer)}.json`;

export const bearer = createBearerGuard({
  issuer: "https://login.example.com",
  audience: "https://api.example.com",
  state: {
    get: (issuer) => (existsSync(fileOf(issuer)) ? JSON.parse(readFileSync(fileOf(issuer), "utf8")) : undefined),
    set(issuer, state) {
      const file = fileOf(issuer);
      writeFileSync(`${file}.${process.pid}`, JSON.stringify(state), { mode: 0o600 });
      renameSync(`${file}.${process.pid}`, file);
    },
  },
});
