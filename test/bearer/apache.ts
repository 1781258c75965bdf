import { chmod, writeFile } from "node:fs/promises";
import { createServer } from "node:https";
import { join } from "node:path";
import { certificateFor } from "../client/certificate.ts";
import { startProgram } from "../support/caches.ts";
import { listening } from "../support/listening.ts";
import { type Scope, freePort, temporaryFolder } from "../support/service.ts";
import { audience } from "./guards.ts";
import { type StartAdapter, listen } from "./node-adapters.ts";

// mod_auth_openidc as a resource server: Apache in front of a program that returns 200.

const modules = ["mpm_event", "authn_core", "authz_core", "authz_user", "auth_openidc", "proxy", "proxy_http"];

/** Starts Apache with these lines on a free port. @returns the port */
export async function startApache(t: Scope, authorities: string, lines: (port: number) => string): Promise<number> {
  const [folder, port] = [await temporaryFolder(t), await freePort()];
  await chmod(folder, 0o755);
  const [file, certificates] = [join(folder, "apache.conf"), join(folder, "authorities.pem")];
  await writeFile(certificates, authorities);
  const text = `ServerName localhost
ServerRoot ${folder}
DefaultRuntimeDir ${folder}
PidFile pid
ErrorLog error.log
LogLevel crit
Listen 127.0.0.1:${port}
${process.getuid?.() === 0 ? "User www-data\nGroup www-data" : ""}
${modules.map((name) => `LoadModule ${name}_module /usr/lib/apache2/modules/mod_${name}.so`).join("\n")}
OIDCCABundlePath ${certificates}
${lines(port)}`;
  await writeFile(file, text);
  await startProgram(t, "apache2", ["-D", "FOREGROUND", "-f", file], { host: "127.0.0.1", port });
  return port;
}

/** Returns a guarded location. */
export const location = (
  path: string,
  requirements: readonly string[],
  more = "",
): string => `<LocationMatch "^${path}$">
  AuthType oauth20
  ${more}
  <RequireAll>
${requirements.map((requirement) => `    ${requirement}\n`).join("")}  </RequireAll>
</LocationMatch>`;

const all = (...values: readonly string[]): string[] => values.map((value) => `Require claim ${value}`);
const anyOf = (...requirements: readonly string[]): string => `<RequireAny>\n${requirements.join("\n")}\n</RequireAny>`;
const any = (...values: readonly string[]): string => anyOf(...all(...values));
const withScope = (name: string): string =>
  anyOf(`Require claim "scope~(^| )orders:${name}( |$)"`, `Require claim scp:orders:${name}`);

const passOn = (path: string, port: number): string => `ProxyPassMatch "^${path}$" "http://127.0.0.1:${port}"`;

export const modAuthOpenidc: StartAdapter = async (t, { issuer, down }) => {
  const backend = await listen(t, (request, response) => void request.resume().on("end", () => response.end("ok")));
  const own = all(`iss:${issuer}`, `aud:${audience}`);
  const paths: Readonly<Record<string, readonly [requirements: readonly string[], more?: string]>> = {
    "/plain": [own],
    "/scope": [[...own, withScope("read"), withScope("list")]],
    "/any": [[...own, anyOf(withScope("write"), withScope("read"))]],
    "/permissions": [[...own, ...all("permissions:orders:read")]],
    "/revoked": [[...own, "Require not claim revoked:true"]],
    "/optional": [
      [anyOf(`Require expr "-z req('Authorization')"`, `<RequireAll>\n${own.join("\n")}\n</RequireAll>`)],
      "OIDCUnAuthAction pass",
    ],
    "/client-id": [
      [
        ...all(`iss:${issuer}`),
        any("client_id:app", "client_id:other"),
        ...all("aud~.").map((line) => line.replace("Require", "Require not")),
      ],
    ],
    "/cookie": [own, "OIDCOAuthAcceptTokenAs cookie:token"],
    "/own-keys": [own],
    "/oauth": [all(`iss:${issuer}/oauth`, `aud:${audience}`)],
    "/acr": [[...own, any("acr:urn:mace:incommon:iap:silver", "acr:phr")]],
    "/jwt": [own],
    "/required-claims": [[...own, ...all("sub~.", "cnf~.")]],
  };
  // It accepts only https.
  const certificate = certificateFor("localhost");
  const jwks = createServer(certificate, async (_, response) =>
    response.end(await (await fetch(`${issuer}/jwks`)).text()),
  );
  const [jwksPort, second, closed] = [await listening(t, jwks), await freePort(), await freePort()];
  /** Returns a host with the keys from one port. */
  const host = (port: number, keysPort: number, guarded: typeof paths, more = ""): string => {
    const lines = Object.entries(guarded).map(
      ([path, rules]) => `${location(path, ...rules)}\n${passOn(path, backend)}`,
    );
    return `<VirtualHost 127.0.0.1:${port}>
OIDCOAuthVerifyJwksUri https://localhost:${keysPort}/jwks
${lines.join("\n")}
${more}
</VirtualHost>`;
  };
  const isDown = { "/down": [all(`iss:${down}`, `aud:${audience}`)] } as const;
  return startApache(
    t,
    certificate.cert,
    (port) => `Listen 127.0.0.1:${second}
${host(second, closed, isDown)}
${host(port, jwksPort, paths, passOn("/down", second))}`,
  );
};
