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
  const said = leases.map((lease) => ({ name: printable(lease.name), policy: policyOfReplica(lease) }));
  const given = policyNames.flatMap((name) => (settings[name] === undefined ? [] : [[name, settings[name]] as const]));
  const last = said.findLast(({ policy }) => Object.keys(policy).length > 0 && isPolicy(policy))?.policy;
  const policy = rotationPolicy({ ...last, ...Object.fromEntries(given) });
  for (const replica of said) {
    for (const name of policyNames) {
      const other = replica.policy[name];
      if (other === undefined || other === policy[name]) continue;
      const way = settings[name] === undefined ? "" : `; without ${flagName(name)} here, the command goes by that, too`;
      log.warn(
        `${name} is ${policy[name]} here, and ${other} at the replica "${replica.name}", which goes by its own${way}`,
      );
    }
  }
  return policy;
}

function isPolicy(policy: Partial<RotationPolicy>): boolean {
  try {
    rotationPolicy(policy);
    return true;
  } catch {
    return false;
  }
}
