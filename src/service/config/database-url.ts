import { faultOfUrl, hasPassword as hasPlainPassword } from "../../rotation/store/postgres/url.ts";

const schemes = ["mysql", "mariadb", "redis", "rediss", "libsql", "etcd", "etcds"] as const;

/** How the URL of a database begins that is not PostgreSQL. */
export type DatabaseScheme = (typeof schemes)[number];

/** `undefined` for PostgreSQL, and for what is no database. */
export function databaseScheme(url: string): DatabaseScheme | undefined {
  return schemes.find((scheme) => url.startsWith(`${scheme}:`));
}

/** The members of `etcd://USER:PASSWORD@HOST:PORT,HOST:PORT`; with `etcds`, they have TLS. */
export function etcdMembers(url: string): string[] {
  const [, tls = "", login = "", hosts = ""] = /^etcd(s?):\/\/(?:(.*)@)?([^/?#@]*)\/?$/s.exec(url) ?? [];
  return hosts.split(",").map((host) => `http${tls}://${login && `${login}@`}${host}`);
}

const parts = (url: string): string[] => (/^etcds?:/.test(url) ? etcdMembers(url) : [url]);

export const isDatabaseUrl = (text: string): boolean =>
  databaseScheme(text) === undefined ? faultOfUrl(text) === undefined : parts(text).every((part) => URL.canParse(part));

/** Whether everybody who sees the command line would see a password. */
export const hasPassword = (text: string): boolean =>
  parts(text).some((part) => hasPlainPassword(part) || URL.parse(part)?.searchParams.has("authToken") === true);
