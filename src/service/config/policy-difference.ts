import { type RotationPolicy, type RotationPolicyOptions, policyNames } from "../../rotation/rules/policy.ts";
import { flagName } from "./setting-definitions.ts";

/** How settings differ from the policy of the store. @param given what settings say of it */
export function policyDifference(given: RotationPolicyOptions, stored: RotationPolicy) {
  const names = policyNames.filter((name) => (given[name] ?? stored[name]) !== stored[name]);
  const pairs = names.map((name) => `${flagName(name)} is ${given[name]} here, and ${stored[name]} in the store`);
  return {
    /** What each says, as a sentence without its end. */
    text: `Settings are not those of the store, which hold: ${pairs.join("; ")}`,
    /** The settings as flags of `jwksd policy`; empty where nothing differs. */
    flags: names.map((name) => `${flagName(name)} ${given[name]}`).join(" "),
  };
}
