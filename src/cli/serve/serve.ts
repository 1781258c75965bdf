import { printable } from "../../base/printable.ts";
import { Command } from "../command.ts";
import { type Io, print } from "../io.ts";
import { addSettings, settingsFrom } from "../setting-flags.ts";
import { handleSignals } from "../signals.ts";

export function commandOf(io: Io): Command {
  const command = new Command("serve");
  return addSettings(command)
    .notes(`
Without --keys, jwksd generates the keys and rotates them. With --keys, it
reloads the files when they change and on SIGHUP; if a key is invalid, it logs
an error and keeps the old keys. On SIGTERM, jwksd finishes the requests in
flight and exits.

Each setting is a flag (--port), an environment variable (JWKSD_PORT) and a
member of the --config file ("port"). A flag takes precedence over the
environment, and the environment over the file.

Examples:
  $ jwksd serve --issuer https://login.example.com --data /var/lib/jwksd \\
      --wrapping-key-file /etc/jwksd/wrapping.key --require-store
  $ jwksd serve --issuer https://login.example.com --keys /etc/jwksd/keys
  $ jwksd serve --issuer https://example.com --mount-prefix /oidc
  $ JWKSD_PORT=8080 JWKSD_HOST=0.0.0.0 jwksd serve --json-logs
  $ jwksd serve --config jwksd.json    with {"port": 8080, "jsonLogs": true}`)
    .action((options: Record<string, unknown>) => serve(io, options));
}

async function serve(io: Io, options: Record<string, unknown>): Promise<void> {
  const settings = await settingsFrom(io, options);
  // Loaded here, because --help does not need the service.
  const [{ createLog }, { startService }] = await Promise.all([
    import("../../service/config/logger.ts"),
    import("../../service/endpoint/service.ts"),
  ]);
  const log = createLog(settings, io);
  const starting = startService(settings, log);
  handleSignals(starting);
  const service = await starting;

  if (!settings.jsonLogs) {
    const [first, ...others] = service.kids;
    const rest = others.length === 0 ? "" : `, and ${others.length} more for verification`;
    const page = service.adminUrl === undefined ? "" : `\n  see  ${service.adminUrl}`;
    print(
      io,
      `jwksd is serving ${service.url}\n  kid  ${printable(first ?? "")} (${service.stateText}${rest})\n  try  curl -i ${service.url}${page}`,
    );
  }
}
