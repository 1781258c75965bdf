import { invalidOption } from "../../base/errors.ts";
import { etcdStore } from "../../rotation/store/databases/etcd.ts";
import { libsqlStore } from "../../rotation/store/databases/libsql.ts";
import { mysqlStore } from "../../rotation/store/databases/mysql.ts";
import { redisStore } from "../../rotation/store/databases/redis.ts";
import { postgresStore } from "../../rotation/store/postgres/postgres.ts";
import type { ClosableRegister } from "../../rotation/store/register.ts";
import { type DatabaseScheme, databaseScheme, etcdMembers } from "../config/database-scheme.ts";
import type { StoreSettings } from "../config/store-settings.ts";

type Open = (url: string, options: { readonly issuer: string }) => ClosableRegister;

const etcd: Open = (url, options) => etcdStore(etcdMembers(url), options);

/** Functions that open a database, one per URL scheme. */
const openers: Readonly<Record<DatabaseScheme, Open>> = {
  mysql: mysqlStore,
  mariadb: mysqlStore,
  redis: redisStore,
  rediss: redisStore,
  libsql: libsqlStore,
  etcd,
  etcds: etcd,
};

/** Opens an issuer's store in a database. @throws ConfigError `ERR_OPTION_INVALID` if there is no issuer */
export function openDatabase(url: string, issuer: string | undefined): ClosableRegister {
  if (issuer === undefined) {
    throw invalidOption(
      "--issuer (JWKSD_ISSUER) must be set, because a database may contain the keys of several issuers",
    );
  }
  const scheme = databaseScheme(url);
  return scheme === undefined ? postgresStore(url, { issuer }) : openers[scheme](url, { issuer });
}

/** A database that can list its issuers. */
export type IssuersDatabase = ClosableRegister & Required<Pick<ClosableRegister, "list" | "forIssuer">>;

const listsIssuers = (register: ClosableRegister | undefined): register is IssuersDatabase =>
  register?.list !== undefined && register.forIssuer !== undefined;

/**
 * Opens a database that may contain many issuers.
 *
 * @throws ConfigError `ERR_OPTION_INVALID` if the database cannot list them
 */
export function openIssuers({ url, path, name }: StoreSettings): IssuersDatabase {
  // Any issuer's register lists all issuers.
  const register = path === undefined ? openDatabase(url, "*") : undefined;
  if (listsIssuers(register)) return register;
  throw invalidOption(
    `${name} cannot list issuers; set --store (JWKSD_STORE) to the URL of a PostgreSQL, MySQL, libSQL or etcd database, or run commands for one issuer`,
  );
}
