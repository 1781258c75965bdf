import { guardDefinitions } from "../service/config/guard-setting-definitions.ts";
import { Command } from "./command.ts";
import { type Io, print } from "./io.ts";
import { addSettings, sourcesOf } from "./setting-flags.ts";
import { handleSignals } from "./signals.ts";

export function commandOf(io: Io): Command {
  const command = new Command("guard").option(
    "--check <file>",
    "check a --config file, print what each route requires, and exit",
  );
  return addSettings(command, Object.keys(guardDefinitions), guardDefinitions)
    .notes(`
A proxy asks the guard about each request: nginx with auth_request, Caddy with
forward_auth, Traefik with forwardAuth. The guard checks the access token and
tells the proxy whether to pass the request on. The programs behind the proxy
read the X-Jwksd headers and do not need to read tokens. docs/guard.md has a
configuration for each proxy; every line in it is needed.

The --config file has the same settings, plus "hosts", which lists what each
host and path requires. The guard reloads the file when it changes and on
SIGHUP; if it is invalid, the guard logs an error and keeps the old hosts. On
SIGTERM, the guard finishes the checks in flight and exits.

Examples:
  $ jwksd guard --for nginx --issuer https://login.example.com \\
      --audience https://api.example.com --scope orders:read
  $ jwksd guard --config guard.json
  $ jwksd guard --config guard.json --listen /run/jwksd-guard/guard.sock \\
      --socket-group www-data`)
    .action((options: Record<string, unknown>) => guard(io, options));
}

async function guard(
  io: Io,
  { check, ...options }: { readonly check?: string } & Record<string, unknown>,
): Promise<void> {
  // Loaded here, because --help does not need the guard.
  const [{ createLog }, { readGuardConfig }, { startGuard }] = await Promise.all([
    import("../service/config/logger.ts"),
    import("../service/guard/guard-config.ts"),
    import("../service/guard/guard.ts"),
  ]);
  if (check !== undefined) {
    const { configReport } = await import("../service/guard/config-report.ts");
    return print(
      io,
      await configReport(await readGuardConfig(sourcesOf(io, { ...options, config: check }, guardDefinitions))),
    );
  }
  const read = () => readGuardConfig(sourcesOf(io, options, guardDefinitions));
  const config = await read();
  const { settings, proxy } = config;
  io.jsonLogs = settings.jsonLogs;
  const starting = startGuard(config, read, createLog(settings, io));
  handleSignals(starting);
  const { adminUrl } = await starting;
  if (settings.jsonLogs) return;
  const ready = adminUrl === undefined ? "" : `\n  try  curl ${adminUrl}/readyz`;
  print(io, `jwksd guard is listening for ${proxy} on ${settings.listen}${ready}`);
}
