import { InvalidArgumentError } from "commander";
import { issuerOf } from "../../service/config/addresses.ts";
import { settingsWith } from "../../service/config/setting-definitions.ts";
import { storeSettingsOf } from "../../service/config/store-settings.ts";
import { checkHasKey, signOnce, signWithFiles } from "../../service/token/sign-once.ts";
import { collect, wholeNumber } from "../argument-parsers.ts";
import { addClaim } from "../claim-argument.ts";
import { Command } from "../command.ts";
import { type Io, print } from "../io.ts";
import { withKeys } from "../managed-keys/open-keys.ts";
import { addSettings, settingsFrom } from "../setting-flags.ts";

type TokenOptions = { aud: string[]; sub?: string; claim?: object; lifetime?: number; typ: string };

export function commandOf(io: Io): Command {
  const command = new Command("token")
    .requiredOption("--aud <audience>", "audience; can be repeated", addAudience)
    .option("--sub <subject>", "subject")
    .option("--claim <name=value>", "additional claim; the value is JSON or a plain string; can be repeated", addClaim)
    .option(
      "--lifetime <seconds>",
      "time from iat to exp (default: 3600, or the policy's maximum if that is less)",
      wholeNumber(/^\d+$/, "Must be a whole number of seconds."),
    )
    .option("--typ <type>", 'typ header, such as "at+jwt" for access tokens', "JWT");
  return addSettings(command, [...settingsWith("store"), "keys", "signers"])
    .notes(`
Examples:
  $ jwksd token --aud my-api --sub alice
  $ jwksd token --aud my-api --sub alice --typ at+jwt --lifetime 300 \\
      --claim client_id=web --claim 'scope=read write'
  $ curl -H "Authorization: Bearer $(jwksd token --aud my-api)" \\
      http://127.0.0.1:3000/`)
    .action(async ({ aud, sub, claim, lifetime, typ, ...options }: TokenOptions & Record<string, unknown>) => {
      if (sub !== undefined && Object.hasOwn(claim ?? {}, "sub")) {
        command.error("error: the subject is given twice; omit either --sub or --claim sub=…");
      }
      const claims = { ...claim, ...(sub !== undefined && { sub }), aud: aud.length === 1 ? aud[0] : aud };
      const settings = await settingsFrom(io, options);
      const tokenOptions = { lifetimeSeconds: lifetime, typ };
      if (settings.keys !== undefined) {
        return print(io, await signWithFiles(settings.keys, issuerOf(settings, settings.port), claims, tokenOptions));
      }
      await checkHasKey(storeSettingsOf(settings));
      const token = await withKeys(io, options, {}, ({ custody, ...opened }) =>
        signOnce(opened, () => custody.owner.issuer, claims, tokenOptions),
      );
      print(io, token);
    });
}

function addAudience(audience: string, before?: readonly string[]): string[] {
  if (audience === "") throw new InvalidArgumentError("An audience must not be empty.");
  return collect(audience, before);
}
