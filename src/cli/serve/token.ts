import { Command, InvalidArgumentError } from "commander";
import { createCommandLog } from "../../service/config/log.ts";
import type { SettingName } from "../../service/config/setting-definitions.ts";
import { signWithSettings } from "../../service/token/sign.ts";
import { collect, wholeNumber } from "../arguments.ts";
import { addClaim } from "../claim.ts";
import { type Io, print } from "../io.ts";
import { addSettings, settingsFrom, storeSettings } from "../settings-options.ts";

type TokenOptions = { aud: string[]; sub?: string; claim?: object; lifetime?: number; typ: string };

export function tokenCommand(io: Io): Command {
  const command = new Command("token")
    .requiredOption("--aud <audience>", "audience; may be given several times", addAudience)
    .option("--sub <subject>", "subject")
    .option("--claim <name=value>", "another claim; the value is JSON, else text; may be given several times", addClaim)
    .option(
      "--lifetime <seconds>",
      "from iat to exp (default: 3600, or less where no token may live so long)",
      wholeNumber(/^\d+$/, "Not a whole number of seconds."),
    )
    .option("--typ <type>", 'header typ, such as "at+jwt" for access tokens', "JWT");
  const settings: readonly SettingName[] = ["issuer", "host", "port", "keys", ...storeSettings];
  // It takes those of serve, and lists the few that it needs.
  return addSettings(command, settings, ["issuer", "data", "store", "wrappingKeyFile", "keys", "signers"])
    .addHelpText(
      "after",
      `
Examples:
  $ jwksd token --aud my-api --sub alice
  $ jwksd token --aud my-api --typ at+jwt --lifetime 300 \\
      --claim client_id=web --claim 'scope=read write'
  $ curl -H "Authorization: Bearer $(jwksd token --aud my-api)" \\
      http://127.0.0.1:3000/`,
    )
    .action(async ({ aud, sub, claim, lifetime, typ, ...options }: TokenOptions & Record<string, unknown>) => {
      if (sub !== undefined && Object.hasOwn(claim ?? {}, "sub")) {
        command.error("error: the subject is given twice, with --sub and with --claim sub=…");
      }
      const claims = { ...claim, ...(sub !== undefined && { sub }), aud: aud.length === 1 ? aud[0] : aud };
      const settings = await settingsFrom(io, options);
      const log = createCommandLog(settings.logLevel, settings.jsonLogs, io);
      print(io, await signWithSettings(settings, claims, { lifetimeSeconds: lifetime, typ }, log));
    });
}

function addAudience(audience: string, before?: readonly string[]): string[] {
  if (audience === "") throw new InvalidArgumentError("No verifier takes an empty audience.");
  return collect(audience, before);
}
