import { execFileSync } from "node:child_process";
import { existsSync, globSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { commandOf, installedVersion } from "../test/doctor/debian.ts";
import { part } from "../test/support/parts.ts";
import type { Verifier } from "./verifiers.ts";

// Debian's verifiers that fetch a set themselves, each with its own clock.

const listed = [
  { name: "PyJWT", package: "python3-jwt", program: "python3", argument: "pyjwt" },
  { name: "Authlib", package: "python3-authlib", program: "python3", argument: "authlib-client" },
  { name: "go-oidc", package: "golang-github-coreos-go-oidc-dev", program: "go", argument: "go-oidc" },
  { name: "ruby-jwt", package: "ruby-jwt", program: "ruby", argument: "" },
] as const;

const apache = { name: "mod_auth_openidc", package: "libapache2-mod-auth-openidc" } as const;

// It is in the folder of the architecture.
const libfaketime = globSync("/usr/lib/*/faketime/libfaketime.so.1")[0] ?? "";

/** Returns the packages that are not installed. */
export const missingOfDebian = (): string[] => [
  ...[...listed, apache].map((each) => each.package).filter((name) => installedVersion(name) === undefined),
  ...(existsSync(libfaketime) ? [] : ["libfaketime"]),
];

/** Returns the verifiers. @param folder folder for compiled programs, and for the files that set the time */
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

/** Returns a verifier that starts a web server for each history. */
const inApache = (certificate: string): Verifier => ({
  name: apache.name,
  version: installedVersion(apache.package) ?? "",
  typ: "JWT",
  command: [process.execPath, join(import.meta.dirname, "debian/apache.ts"), certificate],
  env: {},
});

/** Writes the file that sets the time in processes that read the clock through libc. */
export const onClock = (file: string): NodeJS.ProcessEnv => ({
  LD_PRELOAD: libfaketime,
  FAKETIME_TIMESTAMP_FILE: file,
  FAKETIME_NO_CACHE: "1",
  TZ: "UTC",
});

export const setClockFile = (file: string, ms: number): void =>
  writeFileSync(file, new Date(ms).toISOString().replace("T", " ").slice(0, 19));

/** Compiles Go's standard library with a `time.Now` that can be set, because Go reads the clock without libc. */
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
  // A program's files must be in one folder.
  const clockFile = join(import.meta.dirname, "../test/doctor/debian/clock.go");
  const Replace = { [original]: changed, [clockFile]: join(import.meta.dirname, "debian/clock.go") };
  writeFileSync(overlay, JSON.stringify({ Replace }));
  return ["-overlay", overlay, clockFile];
}
