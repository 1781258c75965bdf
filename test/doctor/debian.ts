import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { startChild } from "../../lab/process.ts";
import { part } from "../support/parts.ts";
import type { Client } from "./clients.ts";

// The verifiers from Debian packages, each in its own process.

interface Library {
  readonly name: string;
  readonly package: string;
  readonly program: "python3" | "ruby" | "go";
  readonly argument: string;
  /** Whether it finds the keys through discovery. */
  readonly discovers?: true;
  /** Whether it fetches the keys itself. If not, it receives the parsed document. */
  readonly fetches?: true;
}

export const libraries: readonly Library[] = [
  { name: "PyJWT", package: "python3-jwt", program: "python3", argument: "pyjwt", fetches: true },
  { name: "Authlib", package: "python3-authlib", program: "python3", argument: "authlib" },
  { name: "jwcrypto", package: "python3-jwcrypto", program: "python3", argument: "jwcrypto" },
  { name: "python-jose", package: "python3-jose", program: "python3", argument: "python-jose" },
  { name: "go-jose", package: "golang-gopkg-square-go-jose.v2-dev", program: "go", argument: "go-jose" },
  {
    name: "go-oidc",
    package: "golang-github-coreos-go-oidc-dev",
    program: "go",
    argument: "go-oidc",
    discovers: true,
    fetches: true,
  },
  { name: "ruby-jwt", package: "ruby-jwt", program: "ruby", argument: "" },
];

/** Returns the upstream version of an installed package; `undefined` if it is not installed. */
export function installedVersion(name: string): string | undefined {
  try {
    const version = execFileSync("dpkg-query", ["-W", "-f", "${Version}", name], {
      stdio: ["ignore", "pipe", "ignore"],
    });
    return (
      version
        .toString()
        .replace(/^\d+:/, "")
        .replace(/[-+].*$/, "") || undefined
    );
  } catch {
    return undefined;
  }
}

/**
 * Starts these libraries' verifiers.
 *
 * @param certificate file of the certificate that they trust
 * @param folder folder for compiled programs
 */
export function startDebian(wanted: readonly Library[], certificate: string, folder: string) {
  const started = wanted.map((library) => start(library, certificate, folder));
  return {
    clients: started.map(({ client }) => client),
    stop: async (): Promise<void> => {
      for (const { stop } of started) await stop();
    },
  };
}

function start(library: Library, certificate: string, folder: string) {
  const { name, program, argument } = library;
  const child = startChild(name, commandOf(program, argument, folder), { SSL_CERT_FILE: certificate });
  const client: Client = {
    name,
    version: installedVersion(library.package) ?? "",
    discovers: library.discovers === true,
    fetches: library.fetches === true,
    verify: async (token, { issuer, jwksUri, iss }) => {
      const { verified, error } = await child.ask({ token, issuer, jwksUri, iss });
      if (!verified) throw new Error(error);
    },
  };
  return { client, stop: child.stop };
}

const source = (name: string): string => join(import.meta.dirname, "debian", name);

/** Returns the command that starts a library's verifier. @param build more arguments and files for the Go compiler */
export function commandOf(
  program: Library["program"],
  argument: string,
  folder: string,
  build: readonly string[] = [],
) {
  // Debian's Python and Ruby, which find Debian's packages.
  if (program === "python3") return ["/usr/bin/python3", "-s", source("verify.py"), argument];
  if (program === "ruby") return ["/usr/bin/ruby", source("verify.rb")];
  const built = join(folder, "verify-go");
  const env = { ...process.env, GO111MODULE: "off", GOPATH: "/usr/share/gocode", GOFLAGS: "" };
  execFileSync(part("go"), ["build", "-o", built, ...build, source("verify.go")], { env, stdio: "inherit" });
  return [built, argument];
}
