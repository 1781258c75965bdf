import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { type IncomingMessage, createServer, request } from "node:http";
import { text } from "node:stream/consumers";
import { parse } from "yaml";
import { listening } from "../support/listening.ts";
import { type Proxy, crossOrigin } from "./proxies.ts";

// A stand-in for Traefik, which Debian does not have: it does what Traefik's documentation says about forwardAuth and response headers, with ops/guard/traefik.yml.
// https://doc.traefik.io/traefik/reference/routing-configuration/http/middlewares/forwardauth/

interface Configuration {
  readonly http: {
    readonly middlewares: {
      readonly "jwksd-guard": {
        readonly forwardAuth: { readonly trustForwardHeader: boolean; readonly authResponseHeaders: readonly string[] };
      };
      readonly "jwksd-cors"?: {
        readonly headers: { readonly customResponseHeaders: Readonly<Record<string, string>> };
      };
    };
  };
}

/** Fields that belong to one connection. Traefik removes them, and those that Connection names, before the check. */
const hopByHop = ["connection", "keep-alive", "te", "trailers", "transfer-encoding", "upgrade"];

type Lines = readonly (readonly [name: string, value: string])[];

function linesOf({ rawHeaders }: IncomingMessage): Lines {
  return Array.from({ length: rawHeaders.length / 2 }, (_, index) => [
    rawHeaders[index * 2] ?? "",
    rawHeaders[index * 2 + 1] ?? "",
  ]);
}

/** Sends a request to a port of this machine and returns the response with its body. */
async function exchange(port: number, method: string, path: string, lines: Lines, body = "") {
  const sent = request({ host: "127.0.0.1", port, method, path, headers: lines.flat(), agent: false });
  const [response] = (await once(sent.end(body), "response")) as [IncomingMessage];
  return { response, body: await text(response) };
}

export const traefik: Proxy = {
  name: "traefik",
  async start(t, { guard, backendPort, isCrossOrigin }) {
    const file = new URL("../../ops/guard/traefik.yml", import.meta.url);
    const { http } = parse(crossOrigin(await readFile(file, "utf8"), isCrossOrigin)) as Configuration;
    const { forwardAuth } = http.middlewares["jwksd-guard"];
    const more = http.middlewares["jwksd-cors"]?.headers.customResponseHeaders ?? {};
    if (forwardAuth.trustForwardHeader) throw new Error("clients could choose the path that is checked");
    const names = new Set(forwardAuth.authResponseHeaders.map((name) => name.toLowerCase()));
    const server = createServer(async (asked, response) => {
      const { method = "", url = "", headers } = asked;
      const body = await text(asked);
      const named = (headers.connection ?? "").split(",").map((name) => name.trim().toLowerCase());
      const own = linesOf(asked).filter(([name]) => ![...hopByHop, ...named].includes(name.toLowerCase()));
      const client = own.filter(([name]) => !/^x[-_]forwarded[-_]/i.test(name));
      const check = await exchange(Number(guard), "GET", "/check", [
        ...client.filter(([name]) => !/^content-length$/i.test(name)),
        ["X-Forwarded-For", "127.0.0.1"],
        ["X-Forwarded-Method", method],
        ["X-Forwarded-Proto", "https"],
        ["X-Forwarded-Host", headers.host ?? ""],
        ["X-Forwarded-Uri", url],
      ]);
      const { statusCode = 0 } = check.response;
      const isAllowed = statusCode >= 200 && statusCode < 300;
      const identity = linesOf(check.response).filter(([name]) => names.has(name.toLowerCase()));
      const others = client.filter(([name]) => !names.has(name.toLowerCase()));
      const { response: last, body: text_ } = isAllowed
        ? await exchange(backendPort, method, url, [...others, ...identity], body)
        : check;
      response.writeHead(
        last.statusCode ?? 0,
        [...linesOf(last).filter(([name]) => !hopByHop.includes(name.toLowerCase())), ...Object.entries(more)].flat(),
      );
      response.end(method === "HEAD" ? "" : text_);
    });
    return listening(t, server);
  },
};
