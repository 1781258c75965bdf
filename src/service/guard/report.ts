import { systemClock } from "../../base/clock.ts";
import { loggerOf } from "../config/log.ts";
import type { GuardConfig } from "./guard-config.ts";
import { maxHeaderBytes } from "./guard.ts";
import { type Host, type Route, hostsOf } from "./hosts.ts";
import { identityHeaderNames, identityLimits } from "./identity.ts";
import { createKeySets } from "./key-sets.ts";

/** Bytes of a response to the proxy without its identity headers: the status line and the headers of HTTP. */
const plainBytes = 256;

/**
 * Returns what each route of a configuration needs, and the worst-case sizes, for people.
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`
 */
export function configReport({ settings, proxy, hosts: members }: GuardConfig): string {
  const keySets = createKeySets(
    systemClock,
    loggerOf(() => {}),
  );
  const hosts = [...hostsOf(members, keySets.begin(), { clock: systemClock, onEvent() {} })];
  const sections = hosts.map(([name, host]) =>
    [name === "*" ? "every other host" : name, ...hostLines(host)].join("\n"),
  );
  const worst = Math.max(...hosts.map(([, { claims }]) => responseBytes(claims)));
  const sizes = [
    `response to a check     at most ${worst} bytes${proxy === "nginx" ? "; set proxy_buffer_size 16k" : ""}`,
    `headers for a program   at most ${worst - plainBytes} bytes more than the client sends`,
    `request head of a check at most ${maxHeaderBytes} bytes; larger ones are refused with 431`,
  ];
  return [
    `for ${proxy}, on ${settings.listen}`,
    ...sections,
    ["sizes", ...sizes.map((line) => `  ${line}`)].join("\n"),
  ].join("\n\n");
}

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

/** Returns what a request to a route needs. */
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

function responseBytes(claims: Host["claims"]): number {
  const names = identityHeaderNames(claims);
  const values = Math.min(names.length * identityLimits.value, identityLimits.all);
  // ": " and a line break.
  return names.reduce((sum, name) => sum + name.length + 4, plainBytes + values);
}
