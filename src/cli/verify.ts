import { Command } from "commander";
import { explainVerification, stepLines } from "./explain.ts";
import { printableJson } from "../printable.ts";
import { maxTokenBytes } from "../token/compact-jws.ts";
import { type Io, print } from "./io.ts";
import { collect } from "./token.ts";

/** Room for whitespace around the longest token. */
const maxInputBytes = maxTokenBytes + 1024;

type VerifyFlags = {
  issuer: string;
  jwksUri?: string;
  aud: string[];
  alg?: string[];
  typ?: string;
  allowInsecure?: true;
  json?: true;
};

export function verifyCommand(io: Io): Command {
  return new Command("verify")
    .description("Verify a token as a relying party does, through discovery, and explain each step.")
    .argument("<token>", 'the token, or "-" to read it from standard input, which keeps it out of the process list')
    .requiredOption("--issuer <url>", "issuer identifier of the provider")
    .requiredOption("--aud <audience>", "accepted audience; may be given several times", collect)
    .option("--alg <algorithm>", "accepted algorithm; may be given several times (default: ES256)", collect)
    .option("--typ <type>", "expected header typ (default: not checked)")
    .option("--jwks-uri <url>", "URL of the JWK Set (default: that of the discovery document of the issuer)")
    .option("--allow-insecure", "allow http for hosts that are not loopback")
    .option("--json", "print the steps as JSON")
    .addHelpText(
      "after",
      `
Exits with 0 if the token is good, else with 1.

Examples:
  $ jwksd token --aud my-api | jwksd verify - --issuer http://127.0.0.1:9900 --aud my-api
  $ jwksd verify "$TOKEN" --issuer https://login.example.com --aud my-api --typ at+jwt --json`,
    )
    .action(async (token: string, flags: VerifyFlags) => {
      const explanation = await explainVerification(await readToken(io, token), {
        issuer: flags.issuer,
        jwksUri: flags.jwksUri,
        audience: flags.aud,
        algorithms: flags.alg ?? ["ES256"],
        typ: flags.typ,
        allowInsecure: flags.allowInsecure,
      });
      print(io, flags.json === true ? printableJson(explanation) : stepLines(explanation).join("\n"));
      if (!explanation.verified) io.exitCode = 1;
    });
}

/** A token that was given, or that of standard input, where nobody sees it in the list of processes. */
export async function readToken({ stdin }: Io, token: string): Promise<string> {
  if (token !== "-") return token.trim();
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of stdin) {
    chunks.push(chunk as Buffer);
    bytes += (chunk as Buffer).length;
    if (bytes > maxInputBytes) break;
  }
  const text = Buffer.concat(chunks).toString("utf8");
  // What was not read to its end is refused for its size, even if the rest was whitespace.
  return bytes > maxInputBytes ? text : text.trim();
}
