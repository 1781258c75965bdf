import { type Html, html } from "../../base/html.ts";
import { refusalOf } from "../../base/local-request-check.ts";
import { wellKnownPath } from "../../base/urls.ts";
import { hostileNames } from "../../testing/faulty-sets.ts";
import { faultPaths } from "../../testing/issuer-responses.ts";
import { type TestIssuer, createTestIssuer } from "../../testing/test-issuer.ts";
import { type TestAlgorithm, testAlgorithms } from "../../testing/test-keys.ts";
import { listen } from "../../testing/test-server.ts";
import { wholeNumber } from "../argument-parsers.ts";
import { Command } from "../command.ts";
import { type Io, print } from "../io.ts";
import { handleSignals } from "../signals.ts";

export function commandOf(io: Io): Command {
  const command = new Command("test-issuer")
    .option("--port <port>", "port on 127.0.0.1", wholeNumber(/^[1-9]\d{0,4}$/, "Not a port."), 9400)
    .option("--aud <audience>", "aud of the tokens", "https://api.example.com")
    .option("--seed <text>", "seed for the keys; the same seed always gives the same keys")
    .option("--allow-production", "start even if NODE_ENV is production");
  return command
    .notes(`
Runs an issuer for testing APIs in any language. It keeps its keys in memory.
Its page links to a token for each fault and has buttons that rotate the keys
and take the issuer offline. Each /hostile/CODE is an issuer whose JWK Set has
exactly one fault, the one for which jwksd doctor reports that code.

Examples:
  $ jwksd test-issuer
  $ curl 'http://127.0.0.1:9400/token?scope=orders:read&sub=bob'
  $ curl 'http://127.0.0.1:9400/token?fault=expired'
  $ curl -X POST http://127.0.0.1:9400/rotate`)
    .action(async ({ port, aud, seed, allowProduction }: Options) => {
      const url = `http://127.0.0.1:${port}`;
      const all = { algorithms: testAlgorithms, allowProduction: allowProduction === true };
      const issuer = await createTestIssuer({ issuer: url, audience: aud, seed, ...all });
      const starting = listen(port, "127.0.0.1", (request) => answer(issuer, request));
      handleSignals(starting.then(({ close }) => ({ reload: async () => {}, stop: close })));
      await starting;
      print(
        io,
        `An issuer for tests, not for production: ${url}\n\n  see  ${url}/\n  try  curl ${url}/token\n\nPress Ctrl-C to stop it.`,
      );
    });
}

interface Options {
  readonly port: number;
  readonly aud: string;
  readonly seed?: string;
  readonly allowProduction?: true;
}

/** Action for each button, by path. */
const actions: Readonly<Record<string, (issuer: TestIssuer) => unknown>> = {
  "/rotate": ({ rotate }) => rotate(),
  "/go-offline": ({ goOffline }) => goOffline(),
  "/go-online": ({ goOnline }) => goOnline(),
};

/** Serves the page and its buttons, even while the issuer is offline. Other websites cannot press the buttons. */
async function answer(issuer: TestIssuer, request: Request): Promise<Response | undefined> {
  const { pathname } = new URL(request.url);
  if (pathname === "/")
    return new Response(pageOf(issuer).text, { headers: { "Content-Type": "text/html; charset=utf-8" } });
  const headers = Object.fromEntries(request.headers);
  if (Object.hasOwn(actions, pathname) && refusalOf({ path: pathname, headers }, "127.0.0.1") !== undefined)
    return new Response("Other websites cannot control the test issuer.\n", { status: 403 });
  if (request.method === "POST" && Object.hasOwn(actions, pathname)) {
    await actions[pathname]?.(issuer);
    return new Response(null, { status: 303, headers: { Location: "/" } });
  }
  return issuer.fetch(request).catch(() => undefined);
}

const style = html`body { font: 16px/1.5 system-ui, sans-serif; max-width: 50rem; margin: 2rem auto; padding: 0 1rem; }`;

const link = (path: string, text: string): Html => html`<li><a href="${path}">${text}</a></li>`;

function pageOf({ issuer, audience }: TestIssuer): Html {
  const algorithms = testAlgorithms.map((alg: TestAlgorithm) => link(`/token?alg=${alg}`, `signed with ${alg}`));
  return html`<!doctype html>
    <html lang="en">
      <meta charset="utf-8" />
      <meta name="viewport" content="width=device-width" />
      <meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'" />
      <title>An issuer for tests</title>
      <style>
        ${style}
      </style>
      <h1>An issuer for tests</h1>
      <p>
        <code>iss</code> is <code>${issuer}</code>, <code>aud</code> is <code>${audience}</code>. Not for production.
      </p>
      <h2>Valid tokens</h2>
      <form action="/token">
        <label>scope <input name="scope" value="orders:read" /></label> <button>Get a token</button>
      </form>
      <p>
        Each parameter of <code>/token</code> is a claim, such as <code>/token?scope=orders:read&amp;sub=bob</code>.
      </p>
      <ul>
        ${algorithms}
      </ul>
      <h2>Invalid tokens</h2>
      <ul>
        ${faultPaths().map(([path, title]) => link(path, title))}
      </ul>
      <h2>Provider actions</h2>
      ${Object.keys(actions).map(
        (path) => html`<form action="${path}" method="post"><button>${path.slice(1).replace("-", " ")}</button></form>`,
      )}
      <h2>Documents</h2>
      <ul>
        ${[wellKnownPath("openid-configuration"), "/jwks"].map((path) => link(path, path))}
      </ul>
      <h2>Issuers with a faulty JWK Set</h2>
      <p>The issuer is the address without <code>/jwks</code>; <code>/token</code> below it gives its tokens.</p>
      <ul>
        ${hostileNames.map((name) => link(`/hostile/${name}/jwks`, name))}
      </ul>
    </html>`;
}
