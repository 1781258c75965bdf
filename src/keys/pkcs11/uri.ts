import { isAbsolute } from "node:path";
import { fileURLToPath } from "node:url";
import { ConfigError } from "../../base/errors.ts";

/** Selects one token. All members must match. */
export interface TokenSelector {
  readonly label?: string;
  readonly serial?: string;
  readonly manufacturer?: string;
  readonly model?: string;
  readonly slotId?: number;
}

/** Selects one private key of a token. All members must match. */
export interface KeySelector {
  readonly id?: Uint8Array;
  readonly label?: string;
}

/** A parsed `pkcs11:` URI. */
export interface Pkcs11Uri {
  readonly token: TokenSelector;
  /** Empty if the URI names only a token. */
  readonly key: KeySelector;
  /** Absolute path of the module. */
  readonly modulePath: string | undefined;
  /** Absolute path of the file that holds the PIN. */
  readonly pinFile: string | undefined;
}

// The member of TokenSelector by URI attribute.
const tokenAttributes = { token: "label", serial: "serial", manufacturer: "manufacturer", model: "model" } as const;
const pathAttributes = new Set([...Object.keys(tokenAttributes), "slot-id", "object", "id", "type"]);
const queryAttributes = new Set(["module-path", "pin-source"]);
// Values with percent-encoding. Unencoded, the path also allows "&", and the query "/", "?" and "|".
const pathValue = /^(?:[\w.~:[\]@!$'()*+,=&-]|%[\dA-Fa-f]{2})*$/;
const queryValue = /^(?:[\w.~:[\]@!$'()*+,=/?|-]|%[\dA-Fa-f]{2})*$/;

/**
 * Parses a PKCS#11 URI. An attribute that is unknown, repeated or wrongly encoded is an error, and so is a PIN. No message shows a value,
 * because it may be a secret in the wrong place.
 *
 * @throws ConfigError `ERR_SIGNER_URI`
 * @see RFC 7512 section 2.3
 */
export function parsePkcs11Uri(uri: string): Pkcs11Uri {
  if (typeof uri !== "string" || !/^pkcs11:/i.test(uri)) throw bad('it does not begin with "pkcs11:"');
  const [path, query] = split(uri.slice("pkcs11:".length), "?");
  const attributes = read(path, ";", pathValue, pathAttributes);
  const settings = query === undefined ? new Map<string, Buffer>() : read(query, "&", queryValue, queryAttributes);
  const type = text(attributes, "type");
  if (type !== undefined && type !== "private") throw bad('"type" is not "private"');
  const id = attributes.get("id");
  const label = text(attributes, "object");
  return {
    token: tokenOf(attributes),
    key: { ...(id !== undefined && { id: Uint8Array.from(id) }), ...(label !== undefined && { label }) },
    modulePath: modulePathOf(settings),
    pinFile: pinFileOf(settings),
  };
}

/** {@link parsePkcs11Uri} for the URI of a key, which has a label, an id or both. @throws ConfigError `ERR_SIGNER_URI` */
export function parseKeyUri(uri: string): Pkcs11Uri {
  const parsed = parsePkcs11Uri(uri);
  if (parsed.key.id === undefined && parsed.key.label === undefined) {
    throw bad('it names no key; give "object" (its label), "id", or both');
  }
  return parsed;
}

/** {@link parsePkcs11Uri} for the URI of the token of new keys. @throws ConfigError `ERR_SIGNER_URI` */
export function parseTokenUri(uri: string): Pkcs11Uri {
  const parsed = parsePkcs11Uri(uri);
  if (parsed.key.id !== undefined || parsed.key.label !== undefined) {
    throw bad('the token for new keys is named without a key; leave out "object" and "id"');
  }
  return parsed;
}

/** The URI of a key on a token, without a module and without a PIN. */
export function formatKeyUri(token: { readonly label: string; readonly serial: string }, key: KeySelector): string {
  const id = percentEncoded(key.id ?? new Uint8Array());
  const attributes = [
    ["token", encodeURIComponent(token.label)],
    ["serial", encodeURIComponent(token.serial)],
    ["object", encodeURIComponent(key.label ?? "")],
    ["id", id],
  ].flatMap(([name, value]) => (value === "" ? [] : [`${name}=${value}`]));
  return `pkcs11:${attributes.join(";")};type=private`;
}

/** Adds the id of the found key to its URI, because another key may get the same label later. */
export function withId(
  uri: string,
  key: KeySelector,
  id: Uint8Array,
): { readonly uri: string; readonly selector: KeySelector } {
  if (key.id !== undefined || id.length === 0) return { uri, selector: key };
  const [path, ...query] = uri.split("?");
  return { uri: [`${path};id=${percentEncoded(id)}`, ...query].join("?"), selector: { ...key, id } };
}

/** For messages: `the token "jwksd"`, `the token with serial "1"`. */
export function nameOfToken({ label, slotId, ...others }: TokenSelector): string {
  const all = Object.entries({ ...others, "slot-id": slotId }).filter(([, value]) => value !== undefined);
  const by = all.map(([name, value]) => `${name} ${JSON.stringify(value)}`);
  const which = by.length === 0 ? "" : ` with ${by.join(" and ")}`;
  return `the token${label === undefined ? "" : ` ${JSON.stringify(label)}`}${which}`;
}

/** For messages: `object "login" and id %01`. */
export function nameOfKey({ label, id }: KeySelector): string {
  const object = label === undefined ? [] : [`object ${JSON.stringify(label)}`];
  return [...object, ...(id === undefined ? [] : [`id ${percentEncoded(id)}`])].join(" and ");
}

/** Bytes for the attribute `id` of a URI. */
const percentEncoded = (bytes: Uint8Array): string =>
  Buffer.from(bytes).toString("hex").toUpperCase().replaceAll(/../g, "%$&");

function read(part: string, separator: string, allowed: RegExp, known: ReadonlySet<string>): Map<string, Buffer> {
  const attributes = new Map<string, Buffer>();
  for (const attribute of part === "" ? [] : part.split(separator)) {
    const [name, value] = split(attribute, "=");
    if (name === "pin-value") throw bad('it holds a PIN; give the PIN by "pin-source" or the option "pin"');
    // A malformed name may be a secret, and is not shown.
    if (!known.has(name)) throw bad(/^[a-z-]{1,24}$/.test(name) ? `"${name}" is not supported` : "it is malformed");
    if (value === undefined || !allowed.test(value)) throw bad(`"${name}" is malformed (RFC 7512 section 2.3)`);
    if (value === "") throw bad(`"${name}" is empty`);
    if (attributes.has(name)) throw bad(`"${name}" is given twice`);
    attributes.set(name, decode(value));
  }
  return attributes;
}

const decode = (value: string): Buffer =>
  Buffer.from(
    value.replace(/%(..)/g, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16))),
    "latin1",
  );

function text(attributes: ReadonlyMap<string, Buffer>, name: string): string | undefined {
  const bytes = attributes.get(name);
  if (bytes === undefined) return undefined;
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw bad(`"${name}" is not UTF-8`);
  }
}

function tokenOf(attributes: ReadonlyMap<string, Buffer>): TokenSelector {
  const selector: Record<string, string | number> = {};
  for (const [name, member] of Object.entries(tokenAttributes)) {
    const value = text(attributes, name);
    if (value !== undefined) selector[member] = value;
  }
  const slot = text(attributes, "slot-id");
  if (slot !== undefined) {
    if (!/^\d{1,15}$/.test(slot)) throw bad('"slot-id" is not a decimal number');
    selector["slotId"] = Number(slot);
  }
  if (Object.keys(selector).length === 0) {
    throw bad('it names no token; give "token" (its label), "serial" or "slot-id"');
  }
  return selector;
}

function modulePathOf(settings: ReadonlyMap<string, Buffer>): string | undefined {
  const path = text(settings, "module-path");
  if (path !== undefined && !isAbsolute(path)) throw bad('"module-path" is not an absolute path');
  return path;
}

function pinFileOf(settings: ReadonlyMap<string, Buffer>): string | undefined {
  const source = text(settings, "pin-source");
  if (source === undefined || isAbsolute(source)) return source;
  try {
    return fileURLToPath(source);
  } catch {
    throw bad(
      '"pin-source" is not the absolute path of a file, with or without "file:"; for a command use the option "pin"',
    );
  }
}

/** Splits a text at the first separator. */
function split(text: string, separator: string): [string, string | undefined] {
  const at = text.indexOf(separator);
  return at === -1 ? [text, undefined] : [text.slice(0, at), text.slice(at + 1)];
}

const bad = (rule: string): ConfigError => new ConfigError("ERR_SIGNER_URI", `not a usable PKCS#11 URI: ${rule}`);
