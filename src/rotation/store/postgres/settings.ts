import { readFile, stat } from "node:fs/promises";
import { homedir, userInfo } from "node:os";
import { join } from "node:path";
import { ConfigError } from "../../../base/errors.ts";

/** How to reach a database, as libpq would. */
export interface PostgresSettings {
  /** A host name, an address, or the folder of a Unix socket. */
  readonly host: string;
  readonly port: number;
  readonly user: string;
  readonly database: string;
  readonly applicationName: string;
  readonly tls: Tls | undefined;
  /** Whether a server without TLS is taken as it is. */
  readonly tlsIsOptional: boolean;
  /** Read anew for each connection, so that a password can change. */
  readonly password: () => Promise<string | undefined>;
  /** How messages call the database: without user and password. */
  readonly name: string;
}

/** What `tls.connect` is given. */
export interface Tls {
  readonly rejectUnauthorized: boolean;
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
  /** Only where the name of the server does not count. */
  readonly checkServerIdentity?: () => undefined;
}

/** Parameters of a URL, and the variable of each that takes its place. */
const parameters = {
  host: "PGHOST",
  port: "PGPORT",
  user: "PGUSER",
  dbname: "PGDATABASE",
  passfile: "PGPASSFILE",
  application_name: "PGAPPNAME",
  sslmode: "PGSSLMODE",
  sslrootcert: "PGSSLROOTCERT",
  sslcert: "PGSSLCERT",
  sslkey: "PGSSLKEY",
} as const;

const modes = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"];

/** Why a text is no URL of a database, as the end of the sentence "it must be …"; `undefined` if it is one. Never shows the text. */
export function faultOfUrl(text: string): string | undefined {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const form = "postgres://USER@HOST:PORT/DATABASE";
  if (url === undefined || !["postgres:", "postgresql:"].includes(url.protocol)) {
    return `a URL of one host in the form ${form}`;
  }
  if (url.host.includes(",")) return `a URL of one host in the form ${form}; put a proxy or a name before several`;
  if (url.hash !== "") return `a URL without a fragment, in the form ${form}`;
  const unknown = [...url.searchParams.keys()].filter((name) => !Object.hasOwn(parameters, name));
  if (unknown.includes("password")) return "a URL without a password; put the password into PGPASSFILE or PGPASSWORD";
  if (unknown.length > 0) return `a URL with no parameters but ${Object.keys(parameters).join(", ")}`;
  return undefined;
}

/** Whether everybody who sees the command line would see a password. */
export const hasPassword = (text: string): boolean => URL.canParse(text) && new URL(text).password !== "";

/**
 * Reads the settings of a connection: from the URL, then the variables of libpq, then its defaults.
 *
 * @throws ConfigError `ERR_OPTION_INVALID`
 * @see https://www.postgresql.org/docs/current/libpq-connect.html
 */
export async function postgresSettings(text: string): Promise<PostgresSettings> {
  const fault = faultOfUrl(text);
  if (fault !== undefined) throw invalid(`the URL of the database must be ${fault}`);
  const url = new URL(text);
  const given = (name: keyof typeof parameters): string | undefined =>
    (url.searchParams.get(name) ?? "") || process.env[parameters[name]] || undefined;
  const host = decode(url.hostname).replace(/^\[(.*)\]$/, "$1") || given("host") || "localhost";
  const port = Number(url.port || given("port") || 5432);
  if (!Number.isInteger(port) || port < 1 || port > 65_535)
    throw invalid("the port of the database must be from 1 to 65535");
  const user = decode(url.username) || given("user") || userInfo().username;
  const database = decode(url.pathname.slice(1)) || given("dbname") || user;
  const isSocket = host.startsWith("/");
  const passwordOf = async (): Promise<string | undefined> =>
    decode(url.password) ||
    process.env["PGPASSWORD"] ||
    (await passwordFrom(given("passfile"), [isSocket ? [host, "localhost"] : [host], [`${port}`], [database], [user]]));
  const secure = isSocket ? { tls: undefined, tlsIsOptional: true } : await tlsOf(given);
  return {
    host,
    port,
    user,
    database,
    applicationName: given("application_name") ?? "jwksd",
    ...secure,
    password: passwordOf,
    name: `postgres://${isSocket ? encodeURIComponent(host) : host}:${port}/${database}`,
  };
}

/** @see https://www.postgresql.org/docs/current/libpq-ssl.html */
async function tlsOf(
  given: (name: keyof typeof parameters) => string | undefined,
): Promise<Pick<PostgresSettings, "tls" | "tlsIsOptional">> {
  const root = given("sslrootcert");
  const mode = given("sslmode") ?? (root === "system" ? "verify-full" : "prefer");
  if (!modes.includes(mode)) throw invalid(`sslmode must be one of ${modes.join(", ")}`);
  if (mode === "disable") return { tls: undefined, tlsIsOptional: true };
  if (root === "system" && mode !== "verify-full") throw invalid("sslrootcert=system needs sslmode=verify-full");
  const [ca, cert, key] = await Promise.all([
    root === "system" ? undefined : fileOf("sslrootcert", root, "root.crt"),
    fileOf("sslcert", given("sslcert"), "postgresql.crt"),
    fileOf("sslkey", given("sslkey"), "postgresql.key"),
  ]);
  if (mode === "verify-ca" && ca === undefined) {
    throw invalid(
      "sslmode=verify-ca needs the certificate of an authority in sslrootcert; sslmode=verify-full does not",
    );
  }
  const isVerified = ca !== undefined || mode === "verify-full";
  return {
    tls: {
      rejectUnauthorized: isVerified,
      ...(ca !== undefined && { ca }),
      ...(cert !== undefined && { cert }),
      ...(key !== undefined && { key }),
      ...(mode !== "verify-full" && { checkServerIdentity: () => undefined }),
    },
    tlsIsOptional: mode === "prefer" || mode === "allow",
  };
}

/** A file that is named must be there; one that libpq looks for by itself need not. */
async function fileOf(name: string, path: string | undefined, fallback: string): Promise<string | undefined> {
  try {
    return await readFile(path ?? join(homedir(), ".postgresql", fallback), "utf8");
  } catch (error) {
    if (path === undefined) return undefined;
    throw invalid(`the file of ${name}, ${path}, cannot be read (${(error as NodeJS.ErrnoException).code})`);
  }
}

/**
 * @param wanted what may stand in each field of a line: host, port, database, user
 * @see https://www.postgresql.org/docs/current/libpq-pgpass.html
 */
async function passwordFrom(
  path: string | undefined,
  wanted: readonly (readonly string[])[],
): Promise<string | undefined> {
  const file = path ?? join(homedir(), ".pgpass");
  let text: string;
  try {
    const { mode, uid } = await stat(file);
    // A file of root that a group may read is what Kubernetes mounts for a process of another user; libpq takes keys of TLS so.
    const mayNotBe = uid === 0 && process.geteuid?.() !== 0 ? 0o037 : 0o077;
    if (process.platform !== "win32" && (mode & mayNotBe) !== 0) {
      throw invalid(`others can read the passwords in ${file}; run: chmod 600 ${file}`);
    }
    text = await readFile(file, "utf8");
  } catch (error) {
    if (error instanceof ConfigError) throw error;
    if (path === undefined) return undefined;
    throw invalid(`the password file ${file} cannot be read (${(error as NodeJS.ErrnoException).code})`);
  }
  for (const line of text.split(/\r?\n/)) {
    if (line.startsWith("#")) continue;
    // A backslash takes the next character as it is.
    const fields = (line.match(/(?:\\.|[^:\\])*(?::|$)/g) ?? []).map((field) => field.replace(/:$/, ""));
    const plain = fields.map((field) => field.replaceAll(/\\(.)/g, "$1"));
    const isMeant = wanted.every((values, index) => fields[index] === "*" || values.includes(plain[index] ?? ""));
    if (isMeant && plain.length > wanted.length) return plain[wanted.length];
  }
  return undefined;
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw invalid("the URL of the database holds a % that begins no escape; write it as %25");
  }
}

const invalid = (rule: string): ConfigError => new ConfigError("ERR_OPTION_INVALID", rule);
