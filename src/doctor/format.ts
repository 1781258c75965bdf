import { shownUrl } from "../base/urls.ts";
import { isPrivateText } from "./secrets.ts";

const longest = 60;
/** Names of algorithms and the like are shorter, and private keys are longer. */
const longestName = 39;

/** `one key`, `3 keys`. */
export const counted = (count: number, noun: string): string =>
  count === 1 ? `one ${noun}` : `${count.toLocaleString("en")} ${noun}s`;

/** The type of a value that is not what it should be. It is not quoted, because it may be a key. */
export function typeText(value: unknown): string {
  if (value === undefined) return "missing";
  if (typeof value === "string") return `a text of ${counted(value.length, "character")}`;
  if (Array.isArray(value)) return "an array";
  return typeof value === "object" && value !== null ? "an object" : JSON.stringify(value);
}

/** A value from outside for a message: a name is quoted, and of other values the type is told. */
export const shown = (value: unknown): string =>
  typeof value === "string" && value.length > longestName ? `(${typeText(value)})` : quoted(value);

/** The same for a kid, a header or an issuer, which may be longer. */
export function quoted(value: unknown): string {
  if (typeof value !== "string") return typeText(value);
  if (isPrivateText(value)) return `(${typeText(value)})`;
  return JSON.stringify(value.length > longest ? `${value.slice(0, longest)}…` : value);
}

/** What a body is that cannot be read. It is not quoted, because it may be a key. */
export function bodyText(text: string): string {
  if (text === "") return "it is empty";
  return `it is ${kindText(text)} of ${counted(text.length, "character")}`;
}

/** The kind of a body that is no JSON. */
export function kindText(text: string): string {
  if (isHtml(text)) return isLogin(text) ? "a login page in HTML" : "an HTML page";
  if (text.includes("-----BEGIN ")) return "PEM";
  return /^\s*[{[]/.test(text) ? "JSON with a mistake in it," : "a text";
}

/** Whether a body is a web page. */
export const isHtml = (text: string): boolean => /<(!doctype html|html|head|body)\b/i.test(text.slice(0, 1000));

const isLogin = (html: string): boolean =>
  /type\s*=\s*["']?password\b/i.test(html) || /<title>[^<]{0,100}\b(log|sign)[ -]?(in|on)\b/i.test(html);

/** A URL for a message, without parts that may be secret: query, user, and long parts of the path. */
export function urlText(url: string): string {
  if (!URL.canParse(url)) return shown(url);
  const { protocol } = new URL(url);
  return /^https?:$/.test(protocol) ? shownUrl(url).replaceAll(/[^/]{41,}/g, "…") : `${protocol}…`;
}
