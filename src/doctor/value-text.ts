import { shownUrl } from "../base/urls.ts";
import { isPrivateText } from "./private-key-patterns.ts";
import type { FailingVerifier } from "./verifiers/cited-failures.ts";

const maxQuoted = 60;
/** Maximum length of a name to quote. Names, such as algorithm names, are shorter, and private keys are longer. */
const maxName = 39;

/** Formats a count: `one key`, `3 keys`. */
export const counted = (count: number, noun: string): string =>
  count === 1 ? `one ${noun}` : `${count.toLocaleString("en")} ${noun}s`;

/** Describes an unexpected value's type. Does not quote the value, because it may be a key. */
export function typeText(value: unknown): string {
  if (value === undefined) return "missing";
  if (typeof value === "string") return `a string of ${counted(value.length, "character")}`;
  if (Array.isArray(value)) return "an array";
  return typeof value === "object" && value !== null ? "an object" : JSON.stringify(value);
}

/** Quotes a name, such as an algorithm's. Describes any other value by its type. */
export const quotedName = (value: unknown): string =>
  typeof value === "string" && value.length > maxName ? `(${typeText(value)})` : quoted(value);

/** Quotes a kid, a header or an issuer, which may be longer than a name. */
export function quoted(value: unknown): string {
  if (typeof value !== "string") return typeText(value);
  if (isPrivateText(value)) return `(${typeText(value)})`;
  return JSON.stringify(value.length > maxQuoted ? `${value.slice(0, maxQuoted)}…` : value);
}

/** Describes a body that cannot be parsed. Does not quote the body, because it may be a key. */
export function bodyText(text: string): string {
  if (text === "") return "it is empty";
  return `it is ${kindText(text)} (${counted(text.length, "character")})`;
}

/** Describes what a non-JSON body looks like (HTML, PEM, text). */
export function kindText(text: string): string {
  if (isHtml(text)) return isLogin(text) ? "an HTML login page" : "an HTML page";
  if (text.includes("-----BEGIN ")) return "PEM";
  return /^\s*[{[]/.test(text) ? "invalid JSON" : "text";
}

/** Reports whether a body is a web page. */
export const isHtml = (text: string): boolean => /<(!doctype html|html|head|body)\b/i.test(text.slice(0, 1000));

const isLogin = (html: string): boolean =>
  /type\s*=\s*["']?password\b/i.test(html) || /<title>[^<]{0,100}\b(log|sign)[ -]?(in|on)\b/i.test(html);

/** Formats a URL without the parts that may be secret: the query, the user and long parts of the path. */
export function urlText(url: string): string {
  if (!URL.canParse(url)) return quotedName(url);
  const { protocol } = new URL(url);
  return /^https?:$/.test(protocol) ? shownUrl(url).replaceAll(/[^/]{41,}/g, "…") : `${protocol}…`;
}

/**
 * Groups verifiers according to the tokens that they fail to accept. Each group has a label, which is printed in
 * reports before the names of the group's verifiers.
 */
export function byFailingTokens(breaks: readonly FailingVerifier[]) {
  const groups = [
    { label: "All tokens fail in", fails: "every token" },
    { label: "Tokens signed with this key fail in", fails: "its tokens" },
  ] as const;
  return groups
    .map(({ label, fails }) => ({ label, verifiers: breaks.filter((verifier) => verifier.fails === fails) }))
    .filter(({ verifiers }) => verifiers.length > 0);
}

/**
 * Returns a verifier's name and version. A verifier that consists of two packages has two versions, in the same order
 * as the packages.
 */
export function nameWithVersion({ client, version }: FailingVerifier): string {
  const versions = version.split(" + ");
  return client
    .split(" + ")
    .map((name, index) => `${name} ${versions[index]}`)
    .join(" with ");
}
