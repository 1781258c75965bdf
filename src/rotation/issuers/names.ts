import { ConfigError } from "../../base/errors.ts";
import { targetPath } from "../../base/urls.ts";
import { locate } from "../../publish/paths.ts";

/** Issuers that differ in one part of their host or path. */
export interface Names {
  /** Whether it is one of these issuers, whether or not it has keys. */
  holds(issuer: string): boolean;
  /**
   * The issuer whose document a request asks for; `undefined` where it asks for something else. A path must be as it was issued, byte for byte:
   * an escape, a dot segment or another case is another path. The port of a host does not count, because a proxy may have changed it.
   *
   * @param target of the request, or its whole URL
   * @param host the Host header; what a whole URL says comes before it (RFC 9112 section 3.2.2)
   */
  issuerOf(target: string, host?: string): string | undefined;
}

/** What stands before and after the part that differs. */
type Around = readonly [before: string, after: string];

/** Stands for the part that differs. */
const sample = "x";

const label = /^[a-z\d](?:[a-z\d-]{0,61}[a-z\d])?$/;
const wholeHost = /^[a-z\d](?:[a-z\d.-]{0,251}[a-z\d])?$/;
/** A segment without escapes that is neither hidden nor a dot segment. */
const segment = /^[\w~-][\w.~-]{0,127}$/;

/** The part that differs; `undefined` where the rest is another one. */
function partOf(text: string, [before, after]: Around, rule: RegExp): string | undefined {
  if (!text.startsWith(before) || !text.endsWith(after)) return undefined;
  const part = text.slice(before.length, text.length - after.length);
  return rule.test(part) ? part : undefined;
}

/** @throws ConfigError `ERR_ISSUER_INVALID` */
export function createNames(template: string): Names {
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
  /** In each document's path that names the issuer. */
  const samplePath = path.replace("*", sample);
  const places = [...routes.keys()].flatMap((route): Around[] => {
    const at = route.indexOf(samplePath);
    if (isInHost || at === -1) return [];
    const [start = "", end = ""] = path.split("*");
    return [[route.slice(0, at) + start, end + route.slice(at + samplePath.length)]];
  });

  function partIn(target: string, hostHeader: string | undefined): string | undefined {
    const asked = targetPath(target);
    if (!isInHost) {
      for (const place of places) {
        const part = partOf(asked, place, rule);
        if (part !== undefined) return part;
      }
      return undefined;
    }
    if (!routes.has(asked)) return undefined;
    const [, given = hostHeader ?? ""] = /^[a-z][a-z\d+.-]*:\/\/([^/?]*)/i.exec(target) ?? [];
    // Not toLowerCase() of all: it takes the Kelvin sign for a k.
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

/** Some hosts have another canonical form: 1.2.3 is an address. */
function isIssuer(issuer: string): boolean {
  try {
    locate({ issuer });
    return true;
  } catch {
    return false;
  }
}
