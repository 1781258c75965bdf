import { ConfigError } from "../../base/errors.ts";
import { targetPath } from "../../base/urls.ts";
import { locate } from "../../publish/document-paths.ts";

/** Issuers that differ in one part of their host or path. */
export interface IssuerTemplate {
  /** Reports whether a name is one of these issuers, with or without keys. */
  holds(issuer: string): boolean;
  /**
   * Returns the issuer whose document is requested, or `undefined` if something else is requested. A path must match
   * byte for byte: a path with an escape, a dot segment or different letter case is a different path. A host's port is
   * ignored, because a proxy may have changed it.
   *
   * @param target the request target, or the whole URL
   * @param host the Host header; a whole URL takes precedence (RFC 9112 section 3.2.2)
   */
  issuerOf(target: string, host?: string): string | undefined;
}

/** The strings before and after the variable part. */
type Around = readonly [before: string, after: string];

/** Variable part used in an example name. */
const sample = "x";

const label = /^[a-z\d](?:[a-z\d-]{0,61}[a-z\d])?$/;
const wholeHost = /^[a-z\d](?:[a-z\d.-]{0,251}[a-z\d])?$/;
/** A path segment without escapes that does not start with a dot. */
const segment = /^[\w~-][\w.~-]{0,127}$/;

/** Returns the variable part, or `undefined` if the rest differs. */
function partOf(text: string, [before, after]: Around, rule: RegExp): string | undefined {
  if (!text.startsWith(before) || !text.endsWith(after)) return undefined;
  const part = text.slice(before.length, text.length - after.length);
  return rule.test(part) ? part : undefined;
}

/** @throws ConfigError `ERR_ISSUER_INVALID` */
export function createIssuerTemplate(template: string): IssuerTemplate {
  const [before = "", after = "", ...more] = template.split("*");
  if (after === undefined || !template.includes("*") || more.length > 0) {
    const rule = 'must have one "*", such as https://login.example.com/* or https://*.example.com';
    throw new ConfigError("ERR_ISSUER_INVALID", `issuer ${JSON.stringify(template)} ${rule}`);
  }
  const whole: Around = [before, after];
  const { routes } = locate({ issuer: before + sample + after });
  const [, authority = "", path = ""] = /^https?:\/\/([^/]*)(.*?)\/?$/.exec(template) ?? [];
  const isInHost = authority.includes("*");
  const host = authority.replace(/:\d+$/, "").split("*") as unknown as Around;
  const rule = isInHost ? (host.join("") === "" ? wholeHost : label) : segment;
  const samplePath = path.replace("*", sample);
  /** The strings around the variable part, for each document path that contains the issuer. */
  const places = [...routes.keys()].flatMap((route): Around[] => {
    const at = route.indexOf(samplePath);
    if (isInHost || at === -1) return [];
    const [start = "", end = ""] = path.split("*");
    return [[route.slice(0, at) + start, end + route.slice(at + samplePath.length)]];
  });

  function partIn(target: string, hostHeader: string | undefined): string | undefined {
    const requested = targetPath(target);
    if (!isInHost) {
      for (const place of places) {
        const part = partOf(requested, place, rule);
        if (part !== undefined) return part;
      }
      return undefined;
    }
    if (!routes.has(requested)) return undefined;
    const [, given = hostHeader ?? ""] = /^[a-z][a-z\d+.-]*:\/\/([^/?]*)/i.exec(target) ?? [];
    // Only ASCII letters, because toLowerCase() turns the Kelvin sign into a k.
    const asciiLower = given.replaceAll(/[A-Z]+/g, (letters) => letters.toLowerCase());
    return partOf(asciiLower.replace(/:\d*$/, ""), host, rule);
  }

  return {
    holds(issuer) {
      return typeof issuer === "string" && partOf(issuer, whole, rule) !== undefined && isIssuer(issuer);
    },
    issuerOf(target, host) {
      const part = partIn(target, host);
      return part === undefined ? undefined : before + part + after;
    },
  };
}

/**
 * Reports whether a name is an issuer URL in canonical form. Some hosts have a different canonical form; for example,
 * 1.2.3 is an IP address.
 */
function isIssuer(issuer: string): boolean {
  try {
    locate({ issuer });
    return true;
  } catch {
    return false;
  }
}
