import { fileURLToPath } from "node:url";
import { Command, CommanderError } from "commander";
import packageJson from "../../package.json" with { type: "json" };
import { JwksdError } from "../errors.ts";
import { doctorCommand } from "./doctor.ts";
import { eventsCommand } from "./events.ts";
import { type Io, tell } from "./io.ts";
import { keygenCommand } from "./keygen.ts";
import { keysCommand } from "./keys.ts";
import { planCommand } from "./plan.ts";
import { replicasCommand } from "./replicas.ts";
import { rotateCommand } from "./rotate.ts";
import { serveCommand } from "./serve.ts";
import { signerCommand } from "./signer.ts";
import { storeCommand } from "./store.ts";
import { tokenCommand } from "./token.ts";
import { verifyCommand } from "./verify.ts";

/**
 * Runs one command line, and resolves to its exit code. For `serve`, it resolves after the start, and the service keeps running.
 *
 * @param argv the arguments after `jwksd`
 */
export async function run(argv: readonly string[], io: Io): Promise<number> {
  // For doctor, 1 means that something is broken.
  const failure = argv[0] === "doctor" ? 2 : 1;
  try {
    await program(io).parseAsync(argv, { from: "user" });
    return io.exitCode;
  } catch (error) {
    // The parser has printed the error, or the help.
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : failure;
    if (!(error instanceof JwksdError)) throw error;
    tell(io, `${error.message} [${error.code}]`);
    return failure;
  }
}

/** The folder that help calls `docs/`, beside `src/` and `dist/`. */
const guides = fileURLToPath(new URL("../../docs", import.meta.url));

function program(io: Io): Command {
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
    .addHelpText("afterAll", `\nThe guides of docs/ are in ${guides} and at ${packageJson.homepage}.`)
    .addCommand(serveCommand(io))
    .addCommand(keysCommand(io))
    .addCommand(rotateCommand(io))
    .addCommand(planCommand(io))
    .addCommand(replicasCommand(io))
    .addCommand(eventsCommand(io))
    .addCommand(keygenCommand(io))
    .addCommand(signerCommand(io))
    .addCommand(storeCommand(io))
    .addCommand(tokenCommand(io))
    .addCommand(verifyCommand(io))
    .addCommand(doctorCommand(io));
  connect(program, io);
  return program;
}

/** The versions for a bug report. */
function versionText(): string {
  const { node, sqlite } = process.versions;
  return `jwksd ${packageJson.version} (Node.js ${node}, SQLite ${sqlite ?? "none"}, ${process.platform}-${process.arch})`;
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
