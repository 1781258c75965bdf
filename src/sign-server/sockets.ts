import { ConfigError } from "../errors.ts";
import { type Rule, type Rules, checkOptions, object, oneOf, text, textThat, texts } from "../options.ts";
import { type SignPolicy, policyRules } from "./policy.ts";

/** One sign socket. */
export interface SignSocket {
  readonly path: string;
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
  readonly mode?: string;
  readonly group?: string;
  readonly protocol?: SignSocket["protocol"];
  readonly formerKeys?: readonly string[];
};

/** Nobody else may connect: neither all users of the machine, nor those who may only read. */
const mode = textThat('"0600" or "0660"', (value) => /^0?6[06]0$/.test(value));
const rules: Rules<SocketMembers> = {
  ...policyRules,
  mode,
  group: text,
  protocol: oneOf(...protocols),
  formerKeys: texts,
};

/** As long as the kernel takes. @see unix(7) */
const maxPathBytes = 107;

export const socketPath: Rule<string> = textThat(
  `a path of at most ${maxPathBytes} bytes`,
  (value) => !value.includes("\0") && new TextEncoder().encode(value).length <= maxPathBytes,
);

/**
 * Checks the file of sign sockets: an object with a member for each socket, by its path.
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`
 */
export function checkSockets(
  members: Readonly<Record<string, unknown>>,
  file: string,
  maxTokenLifetimeSeconds: number,
): SignSocket[] {
  return Object.entries(members).map(([path, given]) => {
    const name = `socket ${JSON.stringify(path)} of ${file}`;
    if (!socketPath.holds(path)) throw invalid(`${name} must be named by ${socketPath.must}`);
    if (!object.holds(given)) throw invalid(`${name} must be an object`);
    const {
      mode = "0600",
      group,
      protocol = "http",
      formerKeys = [],
      ...policy
    } = checkOptions(given as SocketMembers, rules, `member of ${name}:`);
    if ((policy.maxLifetimeSeconds ?? 0) > maxTokenLifetimeSeconds) {
      throw invalid(
        `maxLifetimeSeconds of ${name} is ${policy.maxLifetimeSeconds}, and maxTokenLifetimeSeconds ${maxTokenLifetimeSeconds}: a key may be removed before such a token expires`,
      );
    }
    if (protocol === "http" && formerKeys.length > 0) throw invalid(`formerKeys of ${name} are for "kubernetes"`);
    if (protocol === "kubernetes") {
      if (policy.typ !== undefined) throw invalid(`${name} is for "kubernetes", where each typ is JWT; leave it out`);
      const longest = policy.maxLifetimeSeconds ?? maxTokenLifetimeSeconds;
      if (longest < leastLifetimeSeconds) {
        throw invalid(`tokens of ${name} live for ${longest} s, and Kubernetes needs ${leastLifetimeSeconds} or more`);
      }
    }
    return { path, mode: Number.parseInt(mode, 8), group, policy, protocol, formerKeys };
  });
}

const invalid = (message: string): ConfigError => new ConfigError("ERR_OPTION_INVALID", message);
