import { jsonOf } from "../../base/json.ts";
import { isEscaped } from "../../rotation/store/database-url.ts";

const schemes = ["mysql", "mariadb", "redis", "rediss", "libsql", "etcd", "etcds"] as const;

/** Scheme of a database URL that is not for PostgreSQL. */
export type DatabaseScheme = (typeof schemes)[number];

/** Returns the scheme of a database URL; `undefined` for PostgreSQL and for any other string. */
export function databaseScheme(url: string): DatabaseScheme | undefined {
  return schemes.find((scheme) => url.startsWith(`${scheme}:`));
}

/** Returns the members' URLs from `etcd://USER:PASSWORD@HOST:PORT,HOST:PORT`. With `etcds`, they use TLS. */
export function etcdMembers(url: string): string[] {
  const [, tls = "", login = "", hosts = ""] = /^etcd(s?):\/\/(?:(.*)@)?([^/?#@]*)\/?$/s.exec(url) ?? [];
  return hosts.split(",").map((host) => `http${tls}://${login && `${login}@`}${host}`);
}

/** Reports whether a string looks like a database URL. */
export function isDatabaseUrl(text: string): boolean {
  if (!isEscaped(text)) return false;
  if (/^postgres(ql)?:/.test(text)) return true;
  const urls = /^etcds?:/.test(text) ? etcdMembers(text) : [text];
  return databaseScheme(text) !== undefined && urls.every((url) => URL.canParse(url));
}

/**
 * Matches the name of a parameter that contains a secret or, if a parameter's value is JSON, the name of a member that
 * contains a secret. Also matches a private key.
 */
const secret = /"[^"]*(pass(?!file)|pwd|token|secret|jwt|pfx)[^"]*":|PRIVATE KEY/i;

/** Reports whether a URL contains a password, a token or a private key, which must not be on a command line. */
export function hasPassword(text: string): boolean {
  const [, login = "", query] = /^\w+:\/\/(?:([^@/?#]*)@)?[^?#]*(.*)$/s.exec(text) ?? [];
  const parameters = [...new URLSearchParams(query)].map(([name, value]) => ({ [name]: jsonOf(value) ?? value }));
  return /:./.test(login) || secret.test(JSON.stringify(parameters));
}
