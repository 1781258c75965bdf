import { escapes, isEscaped } from "../url.ts";

/** Why a text is no URL of a database, as the end of the sentence "it must be …"; `undefined` if it is one. Never shows the text. */
export function faultOfUrl(text: string): string | undefined {
  const url = urlOf(text);
  if (url === undefined || !["postgres:", "postgresql:"].includes(url.protocol))
    return "a URL in the form postgres://USER@HOST:PORT/DATABASE";
  return isEscaped(url) ? undefined : `one whose ${escapes}`;
}

/** Whether everybody who sees the command line would see a password. */
export function hasPassword(text: string): boolean {
  const url = urlOf(text);
  return url !== undefined && (url.password !== "" || url.searchParams.has("password"));
}

/** A URL. Without a host, as libpq takes it for a Unix socket, `URL` takes no user and no port, so they become parameters. */
function urlOf(text: string): URL | undefined {
  const [, scheme = "", user = "", port, rest = ""] =
    /^(postgres(?:ql)?:\/\/)(?:([^@/?#]*)@)?(?::(\d+))?((?:[/?#].*)?)$/s.exec(text) ?? [];
  if (scheme === "") return URL.parse(text) ?? undefined;
  const url = new URL(`${scheme}${rest}`);
  const { username, password } = new URL(`${scheme}${user}@host`);
  try {
    for (const [name, value] of Object.entries({ user: username, password, port: port ?? "" }))
      if (value !== "") url.searchParams.set(name, decodeURIComponent(value));
    return url;
  } catch {
    // A "%" that encodes nothing.
    return undefined;
  }
}

/** What `pg` reads from URLs alone, and libpq from the environment as well. */
const tlsParameters = ["sslmode", "sslrootcert", "sslcert", "sslkey"];

/**
 * What to connect with, in this order, until the server can do it: without a word about TLS, or with `prefer`, first with TLS and then
 * without it. The modes mean what they mean to libpq, not what they mean to `pg` by default.
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
