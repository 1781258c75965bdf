import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { chmodSync, chownSync, copyFileSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { type IncomingMessage, get } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as pause } from "node:timers/promises";
import { part } from "../../test/support/parts.ts";
import { freePort } from "../../test/support/service.ts";
import { onClock, setClockFile } from "../debian.ts";
import { audience } from "../npm/drivers.ts";

// mod_auth_openidc in its own web server: a question per line in, an answer out. The argument is the file of the certificate.

interface Question {
  readonly at: number;
  readonly token: string;
  readonly iss: string;
  readonly jwksUri: string;
}

// As root, Apache starts only if it is given another user.
const idOf = (flag: string): number => Number(spawnSync("id", [flag, "www-data"], { encoding: "utf8" }).stdout);
const owner = process.getuid?.() === 0 ? { uid: idOf("-u"), gid: idOf("-g") } : {};

const folder = mkdtempSync(join(tmpdir(), "jwksd-apache-"));
const clock = join(folder, "clock");
copyFileSync(process.argv[2] ?? "", join(folder, "certificate.pem"));
writeFileSync(join(folder, "page"), "");
chmodSync(folder, 0o755);
if (owner.uid !== undefined) chownSync(folder, owner.uid, owner.gid);

const modules = ["mpm_prefork", "authn_core", "authz_core", "authz_user", "auth_openidc"];

const settings = (port: number, { iss, jwksUri }: Question): string => `ServerName localhost
ServerRoot ${folder}
DefaultRuntimeDir ${folder}
PidFile pid
ErrorLog error.log
DocumentRoot ${folder}
Listen 127.0.0.1:${port}
KeepAlive Off
${modules.map((name) => `LoadModule ${name}_module /usr/lib/apache2/modules/mod_${name}.so`).join("\n")}
OIDCCABundlePath ${folder}/certificate.pem
OIDCOAuthVerifyJwksUri ${jwksUri}
<Location />
  AuthType oauth20
  <RequireAll>
    Require claim iss:${iss}
    Require claim aud:${audience}
  </RequireAll>
</Location>
`;

/** Starts the server with one process. Returns its port. */
async function start(question: Question): Promise<number> {
  const port = await freePort();
  const file = join(folder, "apache.conf");
  writeFileSync(file, settings(port, question));
  // Timeouts are real, and so is the clock that measures them.
  const env = { ...onClock(clock), FAKETIME_DONT_FAKE_MONOTONIC: "1", TMPDIR: folder };
  const assignments = Object.entries(env).map(([name, value]) => `${name}=${value}`);
  // The lab kills this process. Then the pipe to the shell closes, and the shell stops the server.
  const script = '"$@" & read -r _; kill -KILL $!; wait; rm -rf "$0"';
  const args = ["-c", script, folder, "env", ...assignments, part("apache2"), "-X", "-f", file];
  spawn("/bin/sh", args, { ...owner, cwd: folder, stdio: ["pipe", "ignore", "inherit"] });
  const deadline = performance.now() + 30_000;
  while ((await ask(port).catch(() => undefined)) === undefined) {
    if (performance.now() > deadline) throw new Error(readFileSync(join(folder, "error.log"), "utf8"));
    await pause(20);
  }
  return port;
}

/** Returns the server's result for a token. */
async function ask(port: number, token?: string) {
  const headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
  const request = get({ port, host: "127.0.0.1", path: "/page", headers, agent: false });
  const [response] = (await once(request, "response")) as [IncomingMessage];
  response.resume();
  await once(response, "end");
  const { statusCode = 0, headers: received } = response;
  if (statusCode === 200) return { verified: true };
  const [, why = ""] = /error_description="([^"]*)"/.exec(received["www-authenticate"] ?? "") ?? [];
  return { verified: false, error: `status ${statusCode}: ${why}` };
}

let port: number | undefined;
for await (const line of createInterface({ input: process.stdin })) {
  const question = JSON.parse(line) as Question;
  setClockFile(clock, question.at);
  port ??= await start(question);
  console.log(JSON.stringify(await ask(port, question.token)));
}
