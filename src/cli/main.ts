#!/usr/bin/env node
import { Command } from "commander";
import packageJson from "../../package.json" with { type: "json" };
import { JwksdError } from "../errors.ts";
import { keygenCommand } from "./keygen.ts";
import { serveCommand } from "./serve.ts";
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
  $ jwksd keygen --out keys/2026.jwk    make a signing key
  $ jwksd token --aud my-api            sign a token with the active key
  $ jwksd help verify                   find out why a token is refused`,
  )
  .addCommand(serveCommand())
  .addCommand(keygenCommand())
  .addCommand(tokenCommand())
  .addCommand(verifyCommand());

// A terminal, pipe or disk that takes no more output must not end a service.
for (const output of [process.stdout, process.stderr]) output.on("error", () => {});

try {
  await program.parseAsync();
} catch (error) {
  if (!(error instanceof JwksdError)) throw error;
  console.error(`jwksd: ${error.message} [${error.code}]`);
  process.exitCode = 1;
}
