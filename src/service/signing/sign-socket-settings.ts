import { invalidOption } from "../../base/errors.ts";
import { type Rules, checkOptions, object, oneOf, nonEmptyString, stringThat, strings } from "../../base/options.ts";
import { type HostAndPort, hostAndPort, isLoopbackAddress, socketPath } from "../config/addresses.ts";
import { readJsonObject } from "../config/json-file.ts";
import type { Settings } from "../config/setting-definitions.ts";
import { type SignPolicy, policyRules } from "./policy.ts";

/** One sign socket. */
export interface SignSocket {
  /** Flag that specifies the socket, or the file that lists the sign sockets. */
  readonly setting: "--sign-socket" | "--sign-config";
  /** Path of a Unix socket or, with `tls`, HOST:PORT on this machine. */
  readonly address: string;
  /** Folder with the certificates: `tls.crt`, `tls.key`, and `ca.crt` for clients. */
  readonly tls?: string | undefined;
  /** Permission bits: 0o600 for the service's user only, 0o660 for a group as well. */
  readonly mode: number;
  /** Name or number of the group that may connect. Default: the service's group. */
  readonly group?: string | undefined;
  readonly policy: SignPolicy;
  /** HTTP, or Kubernetes' protocol for external signers. */
  readonly protocol: (typeof protocols)[number];
  /** Files with the public keys for Kubernetes' former signing keys. */
  readonly formerKeys: readonly string[];
}

const protocols = ["http", "kubernetes"] as const;
/**
 * Lowest maximum token lifetime that the API server accepts, in seconds.
 *
 * @see `MetadataResponse` of k8s.io/externaljwt/apis/v1
 */
const minLifetimeSeconds = 600;

type SocketMembers = SignPolicy & {
  readonly tls?: string | undefined;
  readonly mode?: string;
  readonly group?: string;
  readonly protocol?: SignSocket["protocol"];
  readonly formerKeys?: readonly string[];
};

/**
 * Rule for a socket's mode. Any other mode would let every user of the machine connect, or would not change who can
 * connect.
 */
const mode = stringThat('the string "0600" or "0660"', (value) => /^0?6[06]0$/.test(value));
const rules: Rules<SocketMembers> = {
  ...policyRules,
  tls: nonEmptyString,
  mode,
  group: nonEmptyString,
  protocol: oneOf(...protocols),
  formerKeys: strings,
};

type SocketSettings = Pick<Settings, "signSocket" | "signConfig">;

/**
 * Returns the configured sockets, from the flags and from the file. The file contains an object with a member for each
 * socket; the member's name is the socket's path.
 *
 * @throws ConfigError `ERR_CONFIG_FORMAT`, `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`
 */
export async function readSockets({ signSocket, signConfig }: SocketSettings): Promise<readonly SignSocket[]> {
  const sockets: SignSocket[] = [];
  if (signSocket !== undefined) sockets.push(socketOf("--sign-socket", signSocket, "--sign-socket", {}));
  if (signConfig === undefined) return sockets;
  const members = await readJsonObject(signConfig, "the file in --sign-config");
  for (const [address, given] of Object.entries(members)) {
    const name = `socket ${JSON.stringify(address)} in ${signConfig}`;
    if (!socketPath.holds(address)) throw invalidOption(`the name of ${name} must be ${socketPath.must}`);
    if (!object.holds(given)) throw invalidOption(`${name} must be an object`);
    const checked = checkOptions(given as SocketMembers, rules, `member of ${name}`);
    sockets.push(socketOf("--sign-config", address, name, checked));
  }
  return sockets;
}

/** @param name the socket's name in messages */
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
      throw invalidOption(`${name} sets mode, group or protocol, which are only for Unix sockets; remove them`);
    }
  } else if (tls !== undefined) {
    throw invalidOption(`${name} sets tls, which is only for HOST:PORT addresses; remove it and set mode`);
  }
  if (protocol === "http" && formerKeys.length > 0)
    throw invalidOption(
      `${name} sets formerKeys, which is only for the "kubernetes" protocol; set protocol to "kubernetes"`,
    );
  if (protocol === "kubernetes" && policy.typ !== undefined) {
    throw invalidOption(`${name} has the "kubernetes" protocol, in which typ is always JWT; remove typ`);
  }
  const bits = Number.parseInt(mode ?? "0600", 8);
  return { setting, address, tls, mode: bits, group, policy, protocol, formerKeys };
}

/** Checks that an address is a loopback address and that certificates are configured for it. */
function checkAddress(address: HostAndPort, name: string, tls: string | undefined): void {
  if (address.port > 65_535) throw invalidOption(`${name} must be HOST:PORT, such as 127.0.0.1:9902`);
  if (!isLoopbackAddress(address)) {
    throw invalidOption(
      `${name} must be a loopback address, such as 127.0.0.1, because any program that reaches it with a certificate gets tokens; run jwksd next to each program`,
    );
  }
  if (tls === undefined) {
    throw invalidOption(
      `${name} has no certificates, so every user of this machine would get tokens; set "tls" to a folder with tls.crt, tls.key and ca.crt`,
    );
  }
}

/**
 * Checks the sockets' token lifetimes against the one in the rotation policy.
 *
 * @throws ConfigError `ERR_OPTION_INVALID`
 */
export function checkSocketLifetimes(sockets: readonly SignSocket[], maxTokenLifetimeSeconds: number): void {
  for (const { address, protocol, policy } of sockets) {
    const name = `socket ${JSON.stringify(address)}`;
    const { maxLifetimeSeconds: longest = maxTokenLifetimeSeconds } = policy;
    if (longest > maxTokenLifetimeSeconds) {
      throw invalidOption(
        `${name} has a maxLifetimeSeconds of ${longest}, but maxTokenLifetimeSeconds is ${maxTokenLifetimeSeconds}, so a key might be removed before a token expires; lower maxLifetimeSeconds`,
      );
    }
    if (protocol === "kubernetes" && longest < minLifetimeSeconds) {
      throw invalidOption(
        `${name} has a maxLifetimeSeconds of ${longest}, but Kubernetes requires at least ${minLifetimeSeconds}; raise maxLifetimeSeconds`,
      );
    }
  }
}
