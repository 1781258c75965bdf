import { type RotationPolicy, policyNames, rotationPolicy } from "../../rotation/rules/policy.ts";
import { policyOfReplica } from "../../rotation/rules/replica-settings.ts";
import type { Lease } from "../../rotation/store/store.ts";
import { printable } from "../../base/printable.ts";
import type { Logger } from "./logger.ts";
import { type Settings, flagName } from "./setting-definitions.ts";

/**
 * The policy of a command: its own settings, then those of the replica that joined last, then the defaults. Warns of each replica with another
 * policy. Ignores settings in a lease that are not valid here: another version of jwksd, or a hostile writer of the store, has written them.
 *
 * @throws ConfigError `ERR_POLICY_INVALID`
 */
export function commandPolicy(settings: Settings, leases: readonly Lease[], log: Pick<Logger, "warn">): RotationPolicy {
  const given = policyNames.flatMap((name) => (settings[name] === undefined ? [] : [[name, settings[name]] as const]));
  const last = leases
    .map((lease) => policyOfReplica(lease))
    .findLast((policy) => Object.keys(policy).length > 0 && isPolicy(policy));
  const policy = rotationPolicy({ ...last, ...Object.fromEntries(given) });
  warnOfOtherPolicies(policy, leases, log, (name) =>
    settings[name] === undefined
      ? `; the command goes by the ${policy[name]} of the replica that joined last`
      : `; leave ${flagName(name)} out to go by the policy of the replicas`,
  );
  return policy;
}

/** Warns of each replica with another policy than this one. @param more about a setting */
export function warnOfOtherPolicies(
  policy: RotationPolicy,
  leases: readonly Lease[],
  log: Pick<Logger, "warn">,
  more: (name: keyof RotationPolicy) => string = () => "",
): void {
  for (const lease of leases) {
    const said = policyOfReplica(lease);
    for (const name of policyNames) {
      const other = said[name];
      if (other === undefined || other === policy[name]) continue;
      log.warn(
        `${name} is ${policy[name]} here, and ${other} at the replica "${printable(lease.name)}", which goes by its own${more(name)}`,
      );
    }
  }
}

function isPolicy(policy: Partial<RotationPolicy>): boolean {
  try {
    rotationPolicy(policy);
    return true;
  } catch {
    return false;
  }
}
