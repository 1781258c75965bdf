import { systemClock } from "../../base/clock.ts";
import type { Reply } from "../../publish/respond.ts";
import type { AccessDecision } from "../../verify/bearer/access-decision.ts";
import { createRemoteKeySet } from "../../verify/relying-party/index.ts";
import { type GuardConfig, warningsOf } from "./guard-config.ts";
import { maxHeaderBytes } from "./guard.ts";
import { type Host, type Route, hostsOf } from "./host-config.ts";
import { identityLimits } from "./identity-headers.ts";
import { conventions } from "./proxy-conventions.ts";

/**
 * Size, in bytes, of a response head without the guard's own headers: the status line and the standard HTTP headers.
 */
const plainBytes = 256;
/** Combined size allowance, in bytes, for a nonce and for the fixed strings in a refusal's challenge and body. */
const refusalTexts = 512;

/**
 * Returns a human-readable report: the requirements of each route in a configuration, and the worst-case sizes.
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`
 */
export async function configReport(config: GuardConfig): Promise<string> {
  const { settings, proxy } = config;
  const byName = hostsOf(config.hosts, createRemoteKeySet, { clock: systemClock });
  const hosts = [...byName];
  const sections = hosts.map(([name, host]) =>
    [name === "*" ? "every other host" : name, ...hostLines(host)].join("\n"),
  );
  const identity = Math.max(...hosts.map(([, { identity }]) => identityBytes(identity)));
  const refusals = await Promise.all(hosts.map(([, host]) => refusalBytes(host, conventions[proxy].deny)));
  const worst = plainBytes + Math.max(identity, ...refusals);
  // nginx needs the whole head in one buffer.
  const buffer = `; set proxy_buffer_size to at least ${Math.ceil(worst / 4_096) * 4}k`;
  const sizes = [
    `response head           at most ${worst} bytes${proxy === "nginx" ? buffer : ""}`,
    `headers to the program  at most ${identity} bytes more than the client sends`,
    `head of a check request at most ${maxHeaderBytes} bytes; larger ones are rejected with 431`,
  ];
  const warnings = warningsOf(config, byName);
  return [
    `for ${proxy}, on ${settings.listen}`,
    ...sections,
    list("sizes", sizes),
    ...(warnings.length === 0 ? [] : [list("warnings", warnings)]),
  ].join("\n\n");
}

const list = (name: string, lines: readonly string[]): string => [name, ...lines.map((line) => `  ${line}`)].join("\n");

function hostLines({ guards, routes }: Host): string[] {
  const rows = routes.map((route) => [route.path, route.methods?.join(" ") ?? "every method", needs(route)] as const);
  const width = (column: 0 | 1): number => Math.max(...rows.map((row) => row[column].length));
  return [
    ...guards.map(({ issuer }) => `  tokens of ${issuer}`),
    ...rows.map(([path, methods, text]) => `  ${path.padEnd(width(0))}  ${methods.padEnd(width(1))}  ${text}`),
    ...(routes.some(({ base, isPrefix, methods }) => base === "" && isPrefix && methods === undefined)
      ? []
      : ["  everything else is refused"]),
  ];
}

/** Returns the requirements for a request to a route. */
function needs({ requirements, encodedSlashes, passesPreflights }: Route): string {
  const more = [
    ...(passesPreflights ? ["preflights pass"] : []),
    ...(encodedSlashes === true ? ["%2F is allowed"] : []),
  ];
  if (requirements === undefined) return ["public", ...more].join("; ");
  const { scope, acrValues, maxAgeSeconds, optional } = requirements;
  const scopes = typeof scope === "object" ? `one of the scopes ${scope.any.join(" ")}` : scope && `scope ${scope}`;
  return [
    optional === true ? "a token is optional" : "a token",
    ...(scopes === undefined ? [] : [scopes]),
    ...(acrValues === undefined ? [] : [`acr ${acrValues.join(" or ")}`]),
    ...(maxAgeSeconds === undefined ? [] : [`signed in within ${maxAgeSeconds} s`]),
    ...more,
  ].join("; ");
}

function identityBytes(headers: Host["identity"]): number {
  const values = Math.min(headers.length * identityLimits.value, identityLimits.all);
  // ": " and a line break.
  return headers.reduce((sum, [name]) => sum + name.length + 4, values);
}

/**
 * Returns the size of the largest refusal's headers: the headers for a request without a token, plus the headers that
 * other refusals add.
 */
async function refusalBytes({ guards, routes }: Host, deny: (reply: Reply) => Reply): Promise<number> {
  const source = {};
  const request = { method: "GET", target: "/", authorization: undefined, proof: undefined, source, raw: source };
  const sizes = guards.flatMap(({ guard }) =>
    routes.map(async ({ requirements = {} }) => {
      const decision = await guard.decide(request, { ...requirements, optional: false });
      const { headers } = deny((decision as Extract<AccessDecision, { reply: Reply }>).reply);
      // The challenge and the body may repeat the requirements.
      return headers.reduce(
        (sum, text) => sum + text.length + 2,
        refusalTexts + 2 * JSON.stringify(requirements).length,
      );
    }),
  );
  return Math.max(0, ...(await Promise.all(sizes)));
}
