import { invalidOption } from "../../base/errors.ts";
import { etcdStore } from "../../rotation/store/databases/etcd.ts";
import { libsqlStore } from "../../rotation/store/databases/libsql.ts";
import { mysqlStore } from "../../rotation/store/databases/mysql.ts";
import { redisStore } from "../../rotation/store/databases/redis.ts";
import { postgresStore } from "../../rotation/store/postgres/postgres.ts";
import { faultOfUrl, hasPassword as hasPlainPassword } from "../../rotation/store/postgres/url.ts";
import type { OpenRegister } from "../../rotation/store/register.ts";

type Open = (url: string, options: { readonly issuer: string }) => OpenRegister | Promise<OpenRegister>;

const etcd: Open = (url, options) => etcdStore(etcdMembers(url), options);

/** What opens a database, by how its URL begins. */
const openers: Readonly<Record<string, Open>> = {
  mysql: mysqlStore,
  mariadb: mysqlStore,
  redis: redisStore,
  rediss: redisStore,
  libsql: libsqlStore,
  etcd,
  etcds: etcd,
};

const openerOf = (url: string): Open | undefined => openers[/^([a-z]+):/.exec(url)?.[1] ?? ""];

/** The members of `etcd://USER:PASSWORD@HOST:PORT,HOST:PORT`; with `etcds`, they have TLS. */
function etcdMembers(url: string): string[] {
  const [, tls = "", login = "", hosts = ""] = /^etcd(s?):\/\/(?:(.*)@)?([^/?#@]*)\/?$/s.exec(url) ?? [];
  return hosts.split(",").map((host) => `http${tls}://${login && `${login}@`}${host}`);
}

const parts = (url: string): string[] => (/^etcds?:/.test(url) ? etcdMembers(url) : [url]);

export const isDatabaseUrl = (text: string): boolean =>
  openerOf(text) === undefined ? faultOfUrl(text) === undefined : parts(text).every((part) => URL.canParse(part));

/** Whether everybody who sees the command line would see a password. */
export const hasPassword = (text: string): boolean =>
  parts(text).some((part) => hasPlainPassword(part) || URL.parse(part)?.searchParams.has("authToken") === true);

/** @throws ConfigError `ERR_OPTION_INVALID`: no issuer, `ERR_PACKAGE_MISSING` */
export async function openDatabase(url: string, issuer: string | undefined): Promise<OpenRegister> {
  const open = openerOf(url);
  if (open === undefined) return postgresStore(url, { issuer });
  if (issuer === undefined) {
    throw invalidOption(
      "--issuer (JWKSD_ISSUER) must say whose keys are meant: the database may hold those of several",
    );
  }
  return open(url, { issuer });
}
