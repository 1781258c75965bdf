import assert from "node:assert/strict";
import { X509Certificate, createHash } from "node:crypto";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import type { IncomingMessage } from "node:http";
import { get } from "node:https";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { describe, test } from "node:test";
import { certificateFor } from "../client/certificate.ts";
import { skipWithout } from "../support/parts.ts";
import { freePort, temporaryFolder } from "../support/service.ts";
import { isSoak } from "../support/soak.ts";
import type { Seen } from "./backends.ts";
import { type Proxy, proxies } from "./proxies.ts";
import { node, startSite } from "./site.ts";

// Tokens that are bound to a client certificate (RFC 8705), over TLS.

const host = "api.example.com";
const [server, client, other] = [certificateFor(host), certificateFor("client"), certificateFor("other")];
const x5t = createHash("sha256").update(new X509Certificate(client.cert).raw).digest("base64url");

/** Returns the proxy's lines for TLS on a port that asks for a certificate from any authority. */
async function linesOf({ name }: Proxy, folder: string, port: number, backendPort: number) {
  const files = {
    server: join(folder, "server.pem"),
    key: join(folder, "key.pem"),
  };
  await writeFile(files.server, server.cert);
  await writeFile(files.key, server.key);
  const site = `listen 127.0.0.1:${port} ssl;
ssl_certificate ${files.server};
ssl_certificate_key ${files.key};
ssl_verify_client optional_no_ca;`;
  const http = `https://${host}:${port} {
	bind 127.0.0.1
	tls ${files.server} ${files.key} {
		client_auth {
			mode request
		}
	}
	route {
		import jwksd-guard
		reverse_proxy 127.0.0.1:${backendPort}
	}
}`;
  return name === "nginx" ? { site } : { http };
}

for (const proxy of isSoak ? proxies : []) {
  describe(`through ${proxy.name}`, { skip: skipWithout(proxy.name) }, () => {
    test("a token that is bound to a certificate is accepted only on connections that use that certificate", async (t) => {
      const [folder, port, backendPort] = [await temporaryFolder(t), await freePort(), await node.start(t)];
      const lines = await linesOf(proxy, folder, port, backendPort);
      const { token } = await startSite(t, proxy, {
        ...lines,
        backendPort,
        settings: { certificateHeader: "Client-Cert" },
      });
      const bound = token(undefined, { cnf: { "x5t#S256": x5t } });
      const ask = async (certificate?: object, headers: Record<string, string> = {}, given = bound) => {
        const options = { host: "127.0.0.1", port, path: "/orders/1", servername: host, ca: server.cert, agent: false };
        const fields = { Host: host, Authorization: `Bearer ${given}`, ...headers };
        const [response] = (await once(get({ ...options, ...certificate, headers: fields }), "response")) as [
          IncomingMessage,
        ];
        const body = await text(response);
        return response.statusCode === 200 ? (JSON.parse(body) as Seen).identity["subject"] : response.statusCode;
      };
      const forged = `:${new X509Certificate(client.cert).raw.toString("base64")}:`;
      assert.deepEqual(
        [
          await ask(client),
          await ask(other),
          await ask(),
          await ask(other, { "Client-Cert": forged }),
          await ask({}, {}, token()),
        ],
        ["alice", 401, 401, 401, "alice"],
      );
    });
  });
}
