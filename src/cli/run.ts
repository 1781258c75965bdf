import { fileURLToPath } from "node:url";
import { Command, CommanderError } from "commander";
import packageJson from "../../package.json" with { type: "json" };
import { JwksdError } from "../errors.ts";
import { type Io, tell } from "./io.ts";

/** Each command, in the order of the help. One is loaded without the others, which makes its start twice as fast. */
const commands: Readonly<Record<string, (io: Io) => Promise<Command>>> = {
  serve: async (io) => (await import("./serve.ts")).serveCommand(io),
  publish: async (io) => (await import("./publish.ts")).publishCommand(io),
  keys: async (io) => (await import("./keys.ts")).keysCommand(io),
  rotate: async (io) => (await import("./rotate.ts")).rotateCommand(io),
  plan: async (io) => (await import("./plan.ts")).planCommand(io),
  replicas: async (io) => (await import("./replicas.ts")).replicasCommand(io),
  events: async (io) => (await import("./events.ts")).eventsCommand(io),
  keygen: async (io) => (await import("./keygen.ts")).keygenCommand(io),
  signer: async (io) => (await import("./signer.ts")).signerCommand(io),
  store: async (io) => (await import("./store.ts")).storeCommand(io),
  token: async (io) => (await import("./token.ts")).tokenCommand(io),
  verify: async (io) => (await import("./verify.ts")).verifyCommand(io),
  doctor: async (io) => (await import("./doctor.ts")).doctorCommand(io),
};

/**
 * Runs one command line, and resolves to its exit code. For `serve`, it resolves after the start, and the service keeps running.
 *
 * @param argv the arguments after `jwksd`
 */
export async function run(argv: readonly string[], io: Io): Promise<number> {
  // For doctor, 1 means that something is broken.
  const failure = argv[0] === "doctor" ? 2 : 1;
  try {
    await (await program(io, argv[0])).parseAsync(argv, { from: "user" });
    return io.exitCode;
  } catch (error) {
    // The parser has printed the error, or the help.
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : failure;
    if (!(error instanceof JwksdError)) throw error;
    tell(io, `${error.message} [${error.code}]`);
    return failure;
  }
}

/** The commit that the one executable was made of; its build defines this. */
declare const JWKSD_COMMIT: string;
const commit = typeof JWKSD_COMMIT === "undefined" ? undefined : JWKSD_COMMIT;

/** Where help finds `docs/`: beside `src/` and `dist/`. The executable has none. */
const guides = commit === undefined ? `in ${fileURLToPath(new URL("../../docs", import.meta.url))} and ` : "";

/** @param name the command, if it is one. Without it, all of them: help and mistakes are about all. */
async function program(io: Io, name = ""): Promise<Command> {
  const named = Object.hasOwn(commands, name) ? [name] : Object.keys(commands);
  const program = new Command("jwksd")
    .description("Publishes and rotates the public keys of an OpenID provider, as a JWK Set.")
    .version(versionText())
    // Without this, a kid that begins with "-V" would print the version.
    .enablePositionalOptions()
    .showHelpAfterError("(jwksd help COMMAND shows all options)")
    .addHelpText(
      "after",
      `
Start here:
  $ jwksd serve                         serve on http://127.0.0.1:9900; the first start makes a key
  $ jwksd help serve                    every setting, with examples
  $ jwksd publish FOLDER --issuer URL   write both documents for another server, or to a bucket
  $ jwksd keys                          list the keys, and the next step of each
  $ jwksd plan                          draw when each key changes
  $ jwksd replicas                      list who publishes and signs
  $ jwksd rotate                        announce the next key now
  $ jwksd keygen --out keys/$(date +%F).jwk    make a signing key
  $ jwksd store copy --help             move the keys into PostgreSQL, which replicas share
  $ jwksd token --aud my-api            sign a token with the active key
  $ jwksd help verify                   find out why a token is refused
  $ jwksd doctor https://login.example.com    check the keys of any issuer`,
    )
    .addHelpText("afterAll", `\nThe guides of docs/ are ${guides}at ${packageJson.homepage}.`);
  for (const each of named) program.addCommand(await (commands[each] as (io: Io) => Promise<Command>)(io));
  connect(program, io);
  return program;
}

/** The versions for a bug report. */
function versionText(): string {
  const { bun, node, sqlite } = process.versions;
  const runtime = bun === undefined ? `Node.js ${node}` : `Bun ${bun}`;
  const facts = [runtime, `SQLite ${sqlite ?? "none"}`, `${process.platform}-${process.arch}`];
  if (commit !== undefined) facts.unshift(`commit ${commit}`);
  return `jwksd ${packageJson.version} (${facts.join(", ")})`;
}

/** Makes the parser write to the output of the command, and keeps it from ending the process. */
function connect(command: Command, io: Io): void {
  command.exitOverride().configureOutput({
    writeOut: (text) => void io.stdout.write(text),
    writeErr: (text) => void io.stderr.write(text),
    getOutHelpWidth: () => io.stdout.columns ?? 80,
    getErrHelpWidth: () => io.stderr.columns ?? 80,
  });
  for (const sub of command.commands) connect(sub, io);
}
