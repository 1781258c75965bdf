import { maxTokenBytes } from "../../verify/token/compact-jws.ts";
import { collect } from "../argument-parsers.ts";
import { Command } from "../command.ts";
import { type Io, print, printJson, readInput } from "../io.ts";
import { terminalOf } from "../terminal.ts";
import { explanationText } from "./findings-text.ts";
import { adviceFor, doctorCommandFor } from "./verification-advice.ts";
import { explainVerification } from "./verification-steps.ts";

/** Maximum size of the input: the longest token, plus whitespace around it. */
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

export function commandOf(io: Io): Command {
  return new Command("verify")
    .argument("<token>", 'token; "-" reads it from standard input, so that it does not appear in the process list')
    .requiredOption("--issuer <url>", "issuer identifier of the provider")
    .requiredOption("--aud <audience>", "accepted audience; can be repeated", collect)
    .option("--alg <algorithm>", "accepted algorithm; can be repeated (default: ES256)", collect)
    .option("--typ <type>", "expected header typ (default: not checked)")
    .option("--jwks-uri <url>", "URL of the JWK Set (default: from the issuer's discovery document)")
    .option("--allow-insecure", "allow http for non-loopback hosts")
    .option("--json", "JSON output")
    .notes(`
Exit codes: 0, the token is valid; 1, it is invalid or could not be checked.

Examples:
  $ jwksd token --aud my-api |
      jwksd verify - --issuer http://127.0.0.1:9900 --aud my-api
  $ jwksd verify "$TOKEN" --issuer https://login.example.com --aud my-api \\
      --typ at+jwt --json`)
    .action(async (token: string, flags: VerifyFlags) => {
      const { issuer, allowInsecure } = flags;
      const explanation = await explainVerification(await readToken(io, token), {
        issuer,
        jwksUri: flags.jwksUri,
        audience: flags.aud,
        algorithms: flags.alg ?? ["ES256"],
        typ: flags.typ,
        allowInsecure,
      });
      const advice = adviceFor(explanation, { issuer, doctor: doctorCommandFor(issuer, allowInsecure) });
      if (flags.json === true) printJson(io, { ...explanation, advice });
      else print(io, explanationText(explanation, advice, terminalOf(io)));
      if (!explanation.verified) io.exitCode = 1;
    });
}

/** Returns the token from an argument, or from standard input if the argument is "-". */
export async function readToken(io: Io, token: string): Promise<string> {
  if (token !== "-") return token.trim();
  const input = await readInput(io, maxInputBytes);
  const text = input.toString("utf8");
  // Longer input is left untrimmed and is then rejected as too large.
  return input.length > maxInputBytes ? text : text.trim();
}
