import { invalidOption } from "../../base/errors.ts";
import { isLoopback } from "../../base/urls.ts";
import { type Rules, checkOptions, object, oneOf, text, textThat, texts } from "../../base/options.ts";
import { type HostAndPort, hostAndPort, socketPath } from "../config/addresses.ts";
import { readJsonObject } from "../config/json-file.ts";
import type { Settings } from "../config/setting-definitions.ts";
import { type SignPolicy, policyRules } from "./policy.ts";

/** One sign socket. */
export interface SignSocket {
  /** The flag that names it, or its file. */
  readonly setting: "--sign-socket" | "--sign-config";
  /** The path of a Unix socket, or with `tls` HOST:PORT of this machine. */
  readonly address: string;
  /** Folder of the certificates, with `tls.crt`, `tls.key` and the `ca.crt` of clients. */
  readonly tls?: string | undefined;
  /** Who may connect, as bits: 0o600 for the user of the service, 0o660 for a group as well. */
  readonly mode: number;
  /** Name or number. Default: that of the service. */
  readonly group?: string | undefined;
  readonly policy: SignPolicy;
  /** HTTP, or the external signer of Kubernetes. */
  readonly protocol: (typeof protocols)[number];
  /** Files of public keys with which Kubernetes has signed before. */
  readonly formerKeys: readonly string[];
}

const protocols = ["http", "kubernetes"] as const;
/** The API server refuses less. @see `MetadataResponse` of k8s.io/externaljwt/apis/v1 */
const leastLifetimeSeconds = 600;

type SocketMembers = SignPolicy & {
  readonly tls?: string | undefined;
  readonly mode?: string;
  readonly group?: string;
  readonly protocol?: SignSocket["protocol"];
  readonly formerKeys?: readonly string[];
};

/** Nobody else may connect: neither all users of the machine, nor those who may only read. */
const mode = textThat('the string "0600" or "0660"', (value) => /^0?6[06]0$/.test(value));
const rules: Rules<SocketMembers> = {
  ...policyRules,
  tls: text,
  mode,
  group: text,
  protocol: oneOf(...protocols),
  formerKeys: texts,
};

type SocketSettings = Pick<Settings, "signSocket" | "signConfig">;

/**
 * The sockets of a configuration: those of the flags, and those of the file, which is an object with a member for each socket, by its path.
 *
 * @throws ConfigError `ERR_CONFIG_FORMAT`, `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`
 */
export async function readSockets({ signSocket, signConfig }: SocketSettings): Promise<readonly SignSocket[]> {
  const sockets: SignSocket[] = [];
  if (signSocket !== undefined) sockets.push(socketOf("--sign-socket", signSocket, "--sign-socket", {}));
  if (signConfig === undefined) return sockets;
  const members = await readJsonObject(signConfig, "the file of sign sockets");
  for (const [address, given] of Object.entries(members)) {
    const name = `socket ${JSON.stringify(address)} of ${signConfig}`;
    if (!socketPath.holds(address)) throw invalidOption(`${name} must be named by ${socketPath.must}`);
    if (!object.holds(given)) throw invalidOption(`${name} must be an object`);
    const checked = checkOptions(given as SocketMembers, rules, `member of ${name}:`);
    sockets.push(socketOf("--sign-config", address, name, checked));
  }
  return sockets;
}

/** @param name of the socket in messages */
function socketOf(
  setting: SignSocket["setting"],
  address: string,
  name: string,
  { tls, mode, group, protocol = "http", formerKeys = [], ...policy }: SocketMembers,
): SignSocket {
  const listen = hostAndPort(address);
  if (listen !== undefined) {
    checkAddress(listen, name, tls);
    if (mode !== undefined || group !== undefined || protocol !== "http") {
      throw invalidOption(`mode, group and protocol of ${name} are for Unix sockets`);
    }
  } else if (tls !== undefined) {
    throw invalidOption(`tls of ${name} is for HOST:PORT; files have permissions`);
  }
  if (protocol === "http" && formerKeys.length > 0) throw invalidOption(`formerKeys of ${name} are for "kubernetes"`);
  if (protocol === "kubernetes" && policy.typ !== undefined) {
    throw invalidOption(`${name} is for "kubernetes", where each typ is JWT; leave it out`);
  }
  const bits = Number.parseInt(mode ?? "0600", 8);
  return { setting, address, tls, mode: bits, group, policy, protocol, formerKeys };
}

/** Checks an address with TLS. */
function checkAddress({ host, port }: HostAndPort, name: string, tls: string | undefined): void {
  if (port > 65_535) throw invalidOption(`${name} must be HOST:PORT, such as 127.0.0.1:9902`);
  if (!isLoopback(host.includes(":") ? `[${host}]` : host)) {
    throw invalidOption(
      `${name} must be an address of this machine alone, such as 127.0.0.1: anyone who reaches it with a certificate gets tokens, so run jwksd beside each program`,
    );
  }
  if (tls === undefined) {
    throw invalidOption(
      `${name} needs "tls", a folder with tls.crt, tls.key and ca.crt: without client certificates, each user of this machine would get tokens`,
    );
  }
}

/**
 * Checks how long tokens may live by the sockets, and by the policy of the store.
 *
 * @throws ConfigError `ERR_OPTION_INVALID`
 */
export function checkSocketLifetimes(sockets: readonly SignSocket[], maxTokenLifetimeSeconds: number): void {
  for (const { address, protocol, policy } of sockets) {
    const name = `socket ${JSON.stringify(address)}`;
    const { maxLifetimeSeconds: longest = maxTokenLifetimeSeconds } = policy;
    if (longest > maxTokenLifetimeSeconds) {
      throw invalidOption(
        `maxLifetimeSeconds of ${name} is ${longest}, and maxTokenLifetimeSeconds ${maxTokenLifetimeSeconds}: a key may be removed before such a token expires`,
      );
    }
    if (protocol === "kubernetes" && longest < leastLifetimeSeconds) {
      throw invalidOption(
        `tokens of ${name} live for ${longest} s, and Kubernetes needs ${leastLifetimeSeconds} or more`,
      );
    }
  }
}
