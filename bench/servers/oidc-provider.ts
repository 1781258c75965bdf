import type { Server } from "node:http";
import { createRequire } from "node:module";
import type { AddressInfo } from "node:net";
import { listening, privateJwks } from "./setup.ts";

interface Provider {
  listen(port: number, host: string, listening: () => void): Server;
}

// oidc-provider comes without types.
const { Provider } = createRequire(import.meta.url)("oidc-provider") as {
  Provider: new (issuer: string, configuration: object) => Provider;
};

const provider = new Provider("https://op.example", {
  jwks: { keys: privateJwks() },
  cookies: { keys: ["a secret of this run"] },
});
const server = provider.listen(0, "127.0.0.1", () => listening((server.address() as AddressInfo).port));
