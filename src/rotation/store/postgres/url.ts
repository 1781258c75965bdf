import { isEscaped } from "../database-url.ts";

/** Reports whether a string is the URL of a PostgreSQL database. */
export const isPostgresUrl = (text: string): boolean =>
  isEscaped(text) && ["postgres:", "postgresql:"].includes(urlOf(text)?.protocol ?? "");

/** Returns a database's name for messages. Parts that are missing from its URL come from the environment. */
export function nameOf(text: string): string {
  const url = urlOf(text) ?? new URL(text);
  const of = (name: string, given: string): string =>
    given || url.searchParams.get(name) || process.env[`PG${name.toUpperCase()}`] || "";
  const host = of("host", url.hostname) || "localhost";
  const folder = host.startsWith("/") ? encodeURIComponent(host) : host;
  return `postgres://${folder}:${of("port", url.port) || "5432"}/${of("database", url.pathname.slice(1))}`;
}

/**
 * Parses a URL. If there is no host, moves the user and port to parameters, because `URL` does not allow them without a
 * host. For libpq, a missing host means a Unix socket.
 */
function urlOf(text: string): URL | undefined {
  const [, scheme = "", user = "", port, rest = ""] =
    /^(postgres(?:ql)?:\/\/)(?:([^@/?#]*)@)?(?::(\d+))?((?:[/?#].*)?)$/s.exec(text) ?? [];
  if (scheme === "") return URL.parse(text) ?? undefined;
  const url = new URL(`${scheme}${rest}`);
  const { username, password } = new URL(`${scheme}${user}@host`);
  for (const [name, value] of Object.entries({ user: username, password, port: port ?? "" }))
    if (value !== "") url.searchParams.set(name, decodeURIComponent(value));
  return url;
}

/** Parameters that `pg` reads only from URLs, whereas libpq also reads them from the environment. */
const tlsParameters = ["sslmode", "sslrootcert", "sslcert", "sslkey"];

/**
 * Returns the connection strings to try, in order. By default, or with `prefer`, the first uses TLS and the second does
 * not. The modes have the same meaning as in libpq, not the meaning that `pg` gives them by default.
 *
 * @see https://www.postgresql.org/docs/current/libpq-ssl.html
 */
export function connectionStrings(text: string): readonly [string, ...string[]] {
  const url = urlOf(text) ?? new URL(text);
  for (const name of tlsParameters) {
    const value = url.searchParams.get(name) ?? process.env[`PG${name.toUpperCase()}`];
    if (value !== undefined) url.searchParams.set(name, value);
  }
  const mode = url.searchParams.get("sslmode") || "prefer";
  const withMode = (mode: string): string => {
    url.searchParams.set("sslmode", mode);
    return url.href;
  };
  url.searchParams.set("uselibpqcompat", "true");
  return mode === "prefer" || mode === "allow" ? [withMode("prefer"), withMode("disable")] : [withMode(mode)];
}
