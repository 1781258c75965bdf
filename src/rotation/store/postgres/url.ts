/** Why a text is no URL of a database, as the end of the sentence "it must be …"; `undefined` if it is one. Never shows the text. */
export function faultOfUrl(text: string): string | undefined {
  const isUrl = URL.canParse(text) && ["postgres:", "postgresql:"].includes(new URL(text).protocol);
  return isUrl ? undefined : "a URL in the form postgres://USER@HOST:PORT/DATABASE";
}

/** Whether everybody who sees the command line would see a password. */
export function hasPassword(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const { password, searchParams } = new URL(text);
  return password !== "" || searchParams.has("password");
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
  const url = new URL(text);
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
