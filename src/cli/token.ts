import { Command, InvalidArgumentError } from "commander";
import { createCommandLog } from "../server/log.ts";
import { signWithSettings } from "../server/sign.ts";
import { addSettings, settingsFrom, storeSettings } from "./settings-options.ts";

type TokenOptions = { aud: string[]; sub?: string; claim?: object; lifetime: number; typ: string };

export function tokenCommand(): Command {
  const command = new Command("token")
    .description("Print a token, signed with the active key of the same configuration as serve.")
    .requiredOption("--aud <audience>", "audience; may be given several times", collect)
    .option("--sub <subject>", "subject")
    .option("--claim <name=value>", "another claim; the value is JSON, else text; may be given several times", addClaim)
    .option("--lifetime <seconds>", "from iat to exp", seconds, 3600)
    .option("--typ <type>", 'header typ, such as "at+jwt" for access tokens', "JWT");
  return addSettings(command, ["issuer", "host", "port", "keys", ...storeSettings])
    .addHelpText(
      "after",
      `
Examples:
  $ jwksd token --aud my-api --sub alice
  $ jwksd token --aud my-api --typ at+jwt --claim client_id=web --claim 'scope=read write' --lifetime 300
  $ curl -H "Authorization: Bearer $(jwksd token --aud my-api)" http://127.0.0.1:3000/`,
    )
    .action(async ({ aud, sub, claim, lifetime, typ, ...options }: TokenOptions & Record<string, unknown>) => {
      const claims = { ...claim, ...(sub !== undefined && { sub }), aud: aud.length === 1 ? aud[0] : aud };
      const settings = await settingsFrom(options);
      const log = createCommandLog(settings.logLevel, settings.jsonLogs);
      console.log(await signWithSettings(settings, claims, { lifetimeSeconds: lifetime, typ }, log));
    });
}

/** Gathers the values of an option that may be given several times. */
export function collect(value: string, before: readonly string[] = []): string[] {
  return [...before, value];
}

function addClaim(text: string, before: object = {}): object {
  const [, name, value] = /^([^=]+)=(.*)$/s.exec(text) ?? [];
  if (name === undefined || value === undefined) throw new InvalidArgumentError("A claim is written name=value.");
  return { ...before, [name]: jsonOrText(value) };
}

function jsonOrText(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function seconds(text: string): number {
  if (!/^\d+$/.test(text)) throw new InvalidArgumentError("Not a whole number of seconds.");
  return Number(text);
}
