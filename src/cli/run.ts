import { fileURLToPath } from "node:url";
import { CommanderError } from "commander";
import packageJson from "../../package.json" with { type: "json" };
import { JwksdError } from "../base/errors.ts";
import { Command } from "./command.ts";
import { errorText, withAdvice } from "./error-text.ts";
import { helpColumns, helpCommand, optionLine } from "./help.ts";
import { type Io, tell } from "./io.ts";
import { indented } from "./terminal.ts";

type Load = () => Promise<{ commandOf(io: Io): Command }>;

/** Each command, in the order of the help. One is loaded without the others, which makes its start twice as fast. */
const commands: Readonly<Record<string, readonly [description: string, load: Load]>> = {
  serve: ["Serve the JWK Set and the discovery document.", () => import("./serve/serve.ts")],
  demo: ["Watch a whole rotation in three minutes. Not for production.", () => import("./serve/demo.ts")],
  "test-issuer": ["Be an issuer for the tests of an API. Not for production.", () => import("./doctor/test-issuer.ts")],
  publish: ["Write the JWK Set to a folder or a bucket that others serve.", () => import("./serve/publish.ts")],
  keys: ["List the managed keys, and change them one step at a time.", () => import("./keys/keys.ts")],
  rotate: ["Announce the next key now, instead of when it is due.", () => import("./keys/rotate.ts")],
  plan: ["Draw when each managed key changes, and list the steps.", () => import("./keys/plan.ts")],
  policy: ["Print how the managed keys rotate, and change that.", () => import("./keys/policy.ts")],
  replicas: ["List the processes that publish and sign, and the targets.", () => import("./keys/replicas.ts")],
  targets: ["Manage the targets of jwksd publish.", () => import("./keys/targets.ts")],
  events: ["Print the newest events of the managed keys, newest first.", () => import("./keys/events.ts")],
  keygen: ["Make a P-256 signing key.", () => import("./keygen.ts")],
  signer: ["Test keys in HSMs and key services.", () => import("./signer.ts")],
  store: ["Look after the database of the managed keys.", () => import("./store/store.ts")],
  token: ["Print a token that the active key signs.", () => import("./serve/token.ts")],
  verify: ["Verify a token as a relying party does, and explain each step.", () => import("./doctor/verify.ts")],
  doctor: ["Find out what is wrong with any issuer's keys.", () => import("./doctor/doctor.ts")],
  completion: ["Print a script with which a shell completes these commands.", () => import("./completion.ts")],
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
    await (await program(io, argv)).parseAsync(argv, { from: "user" });
    return io.exitCode;
  } catch (error) {
    // The parser has printed the error, or the help.
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : failure;
    if (!(error instanceof JwksdError)) throw error;
    await report(io, argv, error);
    return failure;
  }
}

/** An error that ends a command is one more line of its log where that is JSON. */
async function report(io: Io, argv: readonly string[], error: JwksdError): Promise<void> {
  // Settings that are wrong are not read to their end.
  const { jsonLogs = argv.includes("--json-logs") || /^(1|true)$/.test(io.environment["JWKSD_JSON_LOGS"] ?? "") } = io;
  if (!jsonLogs) return tell(io, errorText(error));
  const { createCommandLog, createLog } = await import("../service/config/log.ts");
  const create = argv[0] === "serve" ? createLog : createCommandLog;
  create({ logLevel: "error", jsonLogs: true }, io).error({ code: error.code }, withAdvice(error));
}

/** `docs/` is beside `src/` and `dist/`. */
const folder = fileURLToPath(new URL("../../docs", import.meta.url));
const guides = `jwksd help OPTION explains an option; jwksd help --store, one with the name of a command. The guides of docs/ are in ${folder} and at ${packageJson.homepage}.`;

/** Whether a command line asks for the options of all commands. */
function asksForAll([first, second]: readonly string[]): boolean {
  return first === "completion" || (first === "help" && second !== undefined && !Object.hasOwn(commands, second));
}

/** Commands that the arguments do not name are not loaded: help needs no more of them than stands in the table. */
export async function program(io: Io, argv: readonly string[]): Promise<Command> {
  const asksAll = asksForAll(argv);
  const isNeeded = (name: string): boolean => asksAll || argv.includes(name);
  const program = new Command("jwksd")
    .description("Publishes and rotates the public keys of an OpenID provider, as a JWK Set.")
    .version(versionText())
    // Without this, a kid that begins with "-V" would print the version.
    .enablePositionalOptions()
    .showHelpAfterError("(jwksd help COMMAND shows all options)")
    .notes(`
Start here:
  $ jwksd serve          serve on port 9900; makes its keys at the first start
  $ jwksd keys           list the keys, and the next step of each
  $ jwksd help serve     all of its options, with examples
  $ jwksd help --port    what an option means, and which commands take it
  $ jwksd help verify    find out why a token is refused
  $ jwksd doctor URL     check the keys of any issuer`)
    .addHelpText("afterAll", `\n${indented(guides, helpColumns, 0).join("\n")}`);
  for (const [name, [description, load]] of Object.entries(commands)) {
    const command = isNeeded(name) ? (await load()).commandOf(io) : new Command(name);
    program.addCommand(command.description(description));
  }
  connect(program, io);
  return program;
}

/** The versions for a bug report. */
function versionText(): string {
  const { node, sqlite } = process.versions;
  const facts = [`Node.js ${node}`, `SQLite ${sqlite ?? "none"}`, `${process.platform}-${process.arch}`];
  return `jwksd ${packageJson.version} (${facts.join(", ")})`;
}

/** Makes the parser write to the output of the command, keeps it from ending the process, and gives each group its `help`. */
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
