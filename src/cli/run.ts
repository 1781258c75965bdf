import { fileURLToPath } from "node:url";
import { CommanderError } from "commander";
import packageJson from "../../package.json" with { type: "json" };
import { JwksdError } from "../base/errors.ts";
import { Command } from "./command.ts";
import { errorText, withAdvice } from "./error-text.ts";
import { helpColumns, helpCommand, optionLine } from "./help-command.ts";
import { type Io, printNotice } from "./io.ts";
import { indented } from "./terminal.ts";

type Load = () => Promise<{ commandOf(io: Io): Command }>;

/**
 * The commands, in the order in which `jwksd help` lists them. Only the command being run is loaded, which makes
 * startup twice as fast.
 */
const commands: Readonly<Record<string, readonly [description: string, load: Load]>> = {
  serve: ["Serve the JWK Set and the discovery document.", () => import("./serve/serve.ts")],
  demo: ["Watch a whole rotation in three minutes. Not for production.", () => import("./serve/demo.ts")],
  "test-issuer": ["Run an issuer for API tests. Not for production.", () => import("./doctor/test-issuer.ts")],
  publish: [
    "Write the JWK Set to a folder or bucket that is served elsewhere.",
    () => import("./serve/publish-command.ts"),
  ],
  guard: ["Check access tokens for nginx, Caddy or Traefik.", () => import("./guard.ts")],
  keys: ["List the managed keys, or change them step by step.", () => import("./managed-keys/keys.ts")],
  rotate: ["Announce the next key now, before it is due.", () => import("./managed-keys/rotate.ts")],
  decommission: ["Decommission an issuer: its keys never sign again.", () => import("./store/decommission.ts")],
  plan: ["Show the planned steps for the managed keys, as a chart and a list.", () => import("./managed-keys/plan.ts")],
  issuers: ["List all issuers in a database, failing ones first.", () => import("./store/issuers.ts")],
  policy: ["Print or change the rotation policy.", () => import("./managed-keys/policy.ts")],
  replicas: [
    "List the processes that publish keys and sign tokens, and the targets.",
    () => import("./managed-keys/replicas.ts"),
  ],
  targets: ["Manage the jwksd publish targets.", () => import("./managed-keys/forget-target.ts")],
  events: [
    "Print the latest events for the managed keys, most recent first.",
    () => import("./managed-keys/events.ts"),
  ],
  keygen: ["Generate a P-256 signing key.", () => import("./keygen.ts")],
  signer: ["Test keys in HSMs and key services.", () => import("./signer-check.ts")],
  store: ["Manage the key store.", () => import("./store/store.ts")],
  token: ["Print a token signed by the active key.", () => import("./serve/token.ts")],
  verify: ["Verify a token as a relying party does, and explain each step.", () => import("./doctor/verify.ts")],
  doctor: ["Find problems with any issuer's keys.", () => import("./doctor/doctor.ts")],
  completion: ["Print a shell completion script.", () => import("./completion.ts")],
};

/**
 * Runs one command line and resolves to its exit code. For `serve`, it resolves after startup, and the service keeps
 * running.
 *
 * @param argv the arguments after `jwksd`
 */
export async function run(argv: readonly string[], io: Io): Promise<number> {
  // For doctor, 1 means that something is broken.
  const failure = argv[0] === "doctor" ? 2 : 1;
  try {
    await (await program(io, argv)).parseAsync(argv, { from: "user" });
    return io.exitCode;
  } catch (error) {
    // The parser has already printed the error or the help.
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : failure;
    if (!(error instanceof JwksdError)) throw error;
    await reportError(io, argv, error);
    return failure;
  }
}

/** Prints the error that ended a command, as a log line if the log is JSON. */
async function reportError(io: Io, argv: readonly string[], error: JwksdError): Promise<void> {
  // If a setting is invalid, `jsonLogs` has not been read.
  const { jsonLogs = argv.includes("--json-logs") || /^(1|true)$/.test(io.environment["JWKSD_JSON_LOGS"] ?? "") } = io;
  if (!jsonLogs) return printNotice(io, errorText(error));
  const { createCommandLog, createLog } = await import("../service/config/logger.ts");
  const create = argv[0] === "serve" ? createLog : createCommandLog;
  create({ logLevel: "error", jsonLogs: true }, io).error({ code: error.code }, withAdvice(error));
}

/** Folder with the guides, next to `src/` and `dist/`. */
const folder = fileURLToPath(new URL("../../docs", import.meta.url));
const guides = `To look up an option, run jwksd help OPTION; if a command has the same name, include the dashes: jwksd help --store. The guides are in ${folder} and at ${packageJson.homepage}.`;

/** Reports whether a command line needs every command's options. */
function needsAll([first, second]: readonly string[]): boolean {
  return first === "completion" || (first === "help" && second !== undefined && !Object.hasOwn(commands, second));
}

/**
 * Creates the program. Loads only the commands named in the arguments; for the others, the table contains everything
 * that the help text shows.
 */
export async function program(io: Io, argv: readonly string[]): Promise<Command> {
  const isAllNeeded = needsAll(argv);
  const isNeeded = (name: string): boolean => isAllNeeded || argv.includes(name);
  const program = new Command("jwksd")
    .description("Publish an OpenID provider's public keys as a JWK Set, and rotate them.")
    .version(versionText())
    // Without this, a kid that begins with "-V" would print the version.
    .enablePositionalOptions()
    .showHelpAfterError("(jwksd help COMMAND shows all options)")
    .notes(`
Start here:
  $ jwksd serve          serve on port 9900; the first start generates the keys
  $ jwksd keys           list the keys and the next step of each
  $ jwksd help serve     list all options of serve, with examples
  $ jwksd help --port    explain an option, and list the commands that have it
  $ jwksd help verify    find out why a token is rejected
  $ jwksd doctor URL     check any issuer's keys`)
    .addHelpText("afterAll", `\n${indented(guides, helpColumns, 0).join("\n")}`);
  for (const [name, [description, load]] of Object.entries(commands)) {
    const command = isNeeded(name) ? (await load()).commandOf(io) : new Command(name);
    program.addCommand(command.description(description));
  }
  connect(program, io);
  return program;
}

/** Returns the versions that a bug report needs. */
function versionText(): string {
  const { node, sqlite } = process.versions;
  const facts = [`Node.js ${node}`, `SQLite ${sqlite ?? "none"}`, `${process.platform}-${process.arch}`];
  return `jwksd ${packageJson.version} (${facts.join(", ")})`;
}

/**
 * Connects the parser to the command's outputs, prevents the parser from ending the process, and adds `help` to each
 * group.
 */
function connect(command: Command, io: Io): void {
  command
    .exitOverride()
    .configureOutput({
      writeOut: (text) => void io.stdout.write(text),
      writeErr: (text) => void io.stderr.write(text),
    })
    .configureHelp({
      helpWidth: helpColumns,
      optionDescription: optionLine,
      subcommandTerm: (sub) => `${sub.name()} ${sub.usage().replaceAll(/\[(?:options|command)\] ?/g, "")}`.trim(),
    });
  if (command.commands.length > 0) command.helpCommand(false).addCommand(helpCommand(io, command));
  for (const sub of command.commands) connect(sub, io);
}
