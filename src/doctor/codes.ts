import { certificate } from "./codes/certificate.ts";
import { curve } from "./codes/curve.ts";
import { discovery } from "./codes/discovery.ts";
import { endpoint } from "./codes/endpoint.ts";
import { openidDiscovery, openidFederation } from "./codes/finding-kind.ts";
import { key } from "./codes/key.ts";
import { rsa } from "./codes/rsa.ts";
import { set } from "./codes/set.ts";
import { watch } from "./codes/watch.ts";

export type { Severity } from "./codes/finding-kind.ts";

/** Every kind of finding, keyed by its stable code. `docs/doctor.md` is generated from this table. */
export const codes = {
  ...set,
  ...key,
  ...curve,
  ...rsa,
  ...certificate,
  ...endpoint,
  ...discovery,
  ...watch,
} as const;

/** Stable code of a finding. */
export type Code = keyof typeof codes;

/** All codes, in the order in which the table lists them. */
// The cast is needed because Object.keys returns strings.
export const allCodes = Object.keys(codes) as readonly Code[];

/** Returns a rule's URL, if it has one. */
export function ruleUrl(rule: string): string | undefined {
  const [, number, section] = /^RFC (\d+) section ([\d.]+)$/.exec(rule) ?? [];
  if (number !== undefined) return `https://www.rfc-editor.org/rfc/rfc${number}#section-${section}`;
  if (rule.startsWith(openidDiscovery)) return "https://openid.net/specs/openid-connect-discovery-1_0.html";
  if (rule.startsWith(openidFederation)) return "https://openid.net/specs/openid-federation-1_0.html";
  if (rule.startsWith("OpenID Connect Core")) return "https://openid.net/specs/openid-connect-core-1_0.html";
  return rule.startsWith("Fetch Standard") ? "https://fetch.spec.whatwg.org/#http-cors-protocol" : undefined;
}
