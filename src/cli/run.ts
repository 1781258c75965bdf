import { fileURLToPath } from "node:url";
import { Command, CommanderError } from "commander";
import packageJson from "../../package.json" with { type: "json" };
import { JwksdError } from "../base/errors.ts";
import { errorText } from "./error-text.ts";
import { type Io, tell } from "./io.ts";

/** Each command, in the order of the help. One is loaded without the others, which makes its start twice as fast. */
const commands: Readonly<Record<string, { description: string; load: (io: Io) => Promise<Command> }>> = {
  serve: {
    description: "Serve the JWK Set and the discovery document.",
    load: async (io) => (await import("./serve.ts")).serveCommand(io),
  },
  demo: {
    description: "Watch a whole rotation in three minutes, with keys in memory. Not for production.",
    load: async (io) => (await import("./demo.ts")).demoCommand(io),
  },
  publish: {
    description: "Write the JWK Set and the discovery document to a folder or a bucket that somebody else serves.",
    load: async (io) => (await import("./publish.ts")).publishCommand(io),
  },
  keys: {
    description: "List the managed keys, and change them one step at a time.",
    load: async (io) => (await import("./keys/keys.ts")).keysCommand(io),
  },
  rotate: {
    description: "Begin a rotation: announce the next key now, instead of when it is due.",
    load: async (io) => (await import("./keys/rotate.ts")).rotateCommand(io),
  },
  plan: {
    description: "Draw the future of the managed keys, and list each step with its time and reason.",
    load: async (io) => (await import("./keys/plan.ts")).planCommand(io),
  },
  replicas: {
    description: "List the processes that publish or sign with the managed keys, and which steps wait for them.",
    load: async (io) => (await import("./keys/replicas.ts")).replicasCommand(io),
  },
  events: {
    description: "Print the audit log of the managed keys, newest first.",
    load: async (io) => (await import("./keys/events.ts")).eventsCommand(io),
  },
  keygen: {
    description: "Make a P-256 signing key, in a new file that only its owner can read, or on standard output.",
    load: async (io) => (await import("./keygen.ts")).keygenCommand(io),
  },
  signer: {
    description: "Test keys in HSMs and key services.",
    load: async (io) => (await import("./signer.ts")).signerCommand(io),
  },
  store: {
    description: "Look after the database of the managed keys.",
    load: async (io) => (await import("./keys/store.ts")).storeCommand(io),
  },
  token: {
    description: "Print a token, signed with the active key. Use the flags or --config of jwksd serve.",
    load: async (io) => (await import("./token.ts")).tokenCommand(io),
  },
  verify: {
    description: "Verify a token as a relying party does, and explain each step.",
    load: async (io) => (await import("./doctor/verify.ts")).verifyCommand(io),
  },
  doctor: {
    description: "Find out what is wrong with the keys of any issuer, and which verifiers fail.",
    load: async (io) => (await import("./doctor/doctor.ts")).doctorCommand(io),
  },
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
    await (await program(io, argv.find(isCommand))).parseAsync(argv, { from: "user" });
    return io.exitCode;
  } catch (error) {
    // The parser has printed the error, or the help.
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : failure;
    if (!(error instanceof JwksdError)) throw error;
    tell(io, errorText(error));
    return failure;
  }
}

/** The commit that the one executable was made of; its build defines this. */
declare const JWKSD_COMMIT: string;
const commit = typeof JWKSD_COMMIT === "undefined" ? undefined : JWKSD_COMMIT;

/** Where help finds `docs/`: beside `src/` and `dist/`. The executable has none. */
const guides = commit === undefined ? `in ${fileURLToPath(new URL("../../docs", import.meta.url))} and ` : "";

const isCommand = (word: string): boolean => Object.hasOwn(commands, word);

/** @param named the command that is loaded. Help and mistakes need no more of the others than stands in the table. */
async function program(io: Io, named: string | undefined): Promise<Command> {
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
  $ jwksd publish FOLDER --issuer URL   write the documents for another server, or to a bucket
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
  for (const [name, { description, load }] of Object.entries(commands))
    program.addCommand((name === named ? await load(io) : new Command(name)).description(description));
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
