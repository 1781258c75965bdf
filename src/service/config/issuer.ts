/** The configured issuer, else the URL of this machine. */
export function issuerOf(
  { issuer, host }: { readonly issuer?: string | undefined; readonly host: string },
  port: number,
): string {
  return issuer ?? new URL(`http://${urlHost(host)}:${port}`).origin;
}

/** The host for a URL on this machine. */
export function urlHost(host: string): string {
  if (host === "0.0.0.0" || host === "::") return "localhost";
  return host.includes(":") ? `[${host}]` : host;
}
