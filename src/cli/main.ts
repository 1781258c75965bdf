#!/usr/bin/env node
import { Command } from "commander";
import packageJson from "../../package.json" with { type: "json" };
import { JwksdError, ServiceError } from "../errors.ts";
import { eventsCommand } from "./events.ts";
import { keygenCommand } from "./keygen.ts";
import { keysCommand } from "./keys.ts";
import { planCommand } from "./plan.ts";
import { rotateCommand } from "./rotate.ts";
import { serveCommand } from "./serve.ts";
import { signerCommand } from "./signer.ts";
import { tokenCommand } from "./token.ts";
import { verifyCommand } from "./verify.ts";

const program = new Command("jwksd")
  .description("Publishes the public keys of an OpenID provider as a JWK Set, exactly.")
  .version(packageJson.version)
  .showHelpAfterError("(jwksd help COMMAND shows what there is)")
  .addHelpText(
    "after",
    `
Start here:
  $ jwksd serve                         serve on http://127.0.0.1:9900, with a key that is made on first start
  $ jwksd help serve                    every setting, with examples
  $ jwksd keys                          which keys there are, and what happens to them next
  $ jwksd plan                          a picture of that
  $ jwksd rotate                        announce the next key now
  $ jwksd keygen --out keys/$(date +%F).jwk    make a signing key
  $ jwksd token --aud my-api            sign a token with the active key
  $ jwksd help verify                   find out why a token is refused`,
  )
  .addCommand(serveCommand())
  .addCommand(keysCommand())
  .addCommand(rotateCommand())
  .addCommand(planCommand())
  .addCommand(eventsCommand())
  .addCommand(keygenCommand())
  .addCommand(signerCommand())
  .addCommand(tokenCommand())
  .addCommand(verifyCommand());

// A terminal, pipe or disk that takes no more output must not end a service.
let lost: NodeJS.ErrnoException | undefined;
process.stdout.on("error", (error) => (lost ??= error));
process.stderr.on("error", () => {});
process.on("exit", checkOutput);

const needed = packageJson.engines.node.replace(">=", "");
if (process.versions.node.localeCompare(needed, "en", { numeric: true }) < 0) {
  console.error(`jwksd: needs Node ${needed} or later, this is ${process.versions.node}`);
  process.exit(1);
}

try {
  await program.parseAsync();
} catch (error) {
  if (!(error instanceof JwksdError)) throw error;
  tell(error);
  process.off("exit", checkOutput);
}

/** A command whose output got lost has failed, unless its reader went away, as head does. A service is there for others. */
function checkOutput(): void {
  // Help ends the process before an error is emitted.
  const { code } = (lost ?? process.stdout.errored ?? {}) as Partial<NodeJS.ErrnoException>;
  if (code === undefined || code === "EPIPE" || program.args[0] === "serve") return;
  tell(new ServiceError("ERR_FILE_UNWRITABLE", `cannot write to standard output (${code})`));
}

function tell({ message, code }: JwksdError): void {
  console.error(`jwksd: ${message} [${code}]`);
  process.exitCode = 1;
}
