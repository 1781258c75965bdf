import { type RotationPolicy, type RotationPolicyOptions, policyNames } from "../../rotation/rules/policy.ts";
import { flagName } from "./setting-definitions.ts";

/** How settings differ from the policy of the store. */
export interface PolicyDifference {
  /** What each says, as a sentence without its end. */
  readonly text: string;
  /** The settings as flags of `jwksd policy`; empty where nothing differs. */
  readonly flags: string;
}

/** @param given what settings say of the policy */
export function policyDifference(given: RotationPolicyOptions, stored: RotationPolicy): PolicyDifference {
  const names = policyNames.filter((name) => (given[name] ?? stored[name]) !== stored[name]);
  const pairs = names.map((name) => `${flagName(name)} is ${given[name]} here, and ${stored[name]} in the store`);
  return {
    text: `Settings are not those of the store, which hold: ${pairs.join("; ")}`,
    flags: names.map((name) => `${flagName(name)} ${given[name]}`).join(" "),
  };
}
