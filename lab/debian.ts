import { execFileSync } from "node:child_process";
import { existsSync, globSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { commandOf, installedVersion } from "../test/doctor/debian.ts";
import { part } from "../test/support/parts.ts";
import type { Verifier } from "./verifiers.ts";

// The verifiers of Debian that fetch a set themselves, each on a clock of its own.

const listed = [
  { name: "PyJWT", package: "python3-jwt", program: "python3", argument: "pyjwt" },
  { name: "Authlib", package: "python3-authlib", program: "python3", argument: "authlib-client" },
  { name: "go-oidc", package: "golang-github-coreos-go-oidc-dev", program: "go", argument: "go-oidc" },
  { name: "ruby-jwt", package: "ruby-jwt", program: "ruby", argument: "" },
] as const;

const apache = { name: "mod_auth_openidc", package: "libapache2-mod-auth-openidc" } as const;

// In the folder of the architecture.
const libfaketime = globSync("/usr/lib/*/faketime/libfaketime.so.1")[0] ?? "";

/** What is not installed. */
export const missingOfDebian = (): string[] => [
  ...[...listed, apache].map((each) => each.package).filter((name) => installedVersion(name) === undefined),
  ...(existsSync(libfaketime) ? [] : ["libfaketime"]),
];

/** The verifiers. @param folder for what is built, and for the files that say what time it is */
export function fromDebian(certificate: string, folder: string): readonly Verifier[] {
  const trusts = { SSL_CERT_FILE: certificate, REQUESTS_CA_BUNDLE: certificate };
  const libraries = listed.map(({ name, package: from, program, argument }): Verifier => {
    const version = installedVersion(from) ?? "";
    const build = program === "go" ? goClock(folder) : [];
    const command = [...commandOf(program, argument, folder, build), "kept"];
    if (program === "go") return { name, version, typ: "JWT", command, env: trusts };
    const file = join(folder, `clock of ${name}`);
    return {
      name,
      version,
      typ: "JWT",
      command,
      env: { ...trusts, ...onClock(file) },
      setClock: (ms) => setClockFile(file, ms),
    };
  });
  return [...libraries, inApache(certificate)];
}

/** A web server for each history, which a process starts. */
const inApache = (certificate: string): Verifier => ({
  name: apache.name,
  version: installedVersion(apache.package) ?? "",
  typ: "JWT",
  command: [process.execPath, join(import.meta.dirname, "debian/apache.ts"), certificate],
  env: {},
});

/** A process that reads the clock through libc reads this file. */
export const onClock = (file: string): NodeJS.ProcessEnv => ({
  LD_PRELOAD: libfaketime,
  FAKETIME_TIMESTAMP_FILE: file,
  FAKETIME_NO_CACHE: "1",
  TZ: "UTC",
});

export const setClockFile = (file: string, ms: number): void =>
  writeFileSync(file, new Date(ms).toISOString().replace("T", " ").slice(0, 19));

/** Programs of Go read the clock without libc. So `time.Now` of the standard library is compiled to return a time that is set. */
function goClock(folder: string): readonly string[] {
  const root = execFileSync(part("go"), ["env", "GOROOT"]).toString().trim();
  const original = join(root, "src/time/time.go");
  const changed = join(folder, "time.go");
  const set = `// LabNanoseconds is what Now returns, unless it is 0: nanoseconds since the Unix epoch.
var LabNanoseconds int64

func Now() Time {
	if LabNanoseconds != 0 {
		return Unix(0, LabNanoseconds)
	}
`;
  const source = readFileSync(original, "utf8");
  writeFileSync(
    changed,
    source.replace("func Now() Time {\n", () => set),
  );
  const overlay = join(folder, "overlay.json");
  // The files of a program are in one folder.
  const beside = join(import.meta.dirname, "../test/doctor/debian/clock.go");
  const Replace = { [original]: changed, [beside]: join(import.meta.dirname, "debian/clock.go") };
  writeFileSync(overlay, JSON.stringify({ Replace }));
  return ["-overlay", overlay, beside];
}
