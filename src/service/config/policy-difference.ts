import { type RotationPolicy, type RotationPolicyOptions, policyNames } from "../../rotation/rules/policy.ts";
import { flagName } from "./setting-definitions.ts";

/** Compares settings with the store's policy. @param given policy in the settings */
export function policyDifference(given: RotationPolicyOptions, stored: RotationPolicy) {
  const names = policyNames.filter((name) => (given[name] ?? stored[name]) !== stored[name]);
  const pairs = names.map((name) => `${flagName(name)} is ${given[name]} here and ${stored[name]} in the store`);
  return {
    /** Both values of each setting, as a sentence without a period. */
    text: `The settings differ from the store's policy, which takes precedence: ${pairs.join("; ")}`,
    /** The settings that differ, as flags for `jwksd policy`; empty if none do. */
    flags: names.map((name) => `${flagName(name)} ${given[name]}`).join(" "),
  };
}
