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

/** Selects one private key on a token. All members must match. */
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
  /** Absolute path of the file that contains the PIN. */
  readonly pinFile: string | undefined;
}

// The member of TokenSelector for each URI attribute.
const tokenAttributes = { token: "label", serial: "serial", manufacturer: "manufacturer", model: "model" } as const;
const pathAttributes = new Set([...Object.keys(tokenAttributes), "slot-id", "object", "id", "type"]);
const queryAttributes = new Set(["module-path", "pin-source"]);
// Percent-encoded values. The path also allows an unencoded "&", and the query "/", "?" and "|".
const pathValue = /^(?:[\w.~:[\]@!$'()*+,=&-]|%[\dA-Fa-f]{2})*$/;
const queryValue = /^(?:[\w.~:[\]@!$'()*+,=/?|-]|%[\dA-Fa-f]{2})*$/;

/**
 * Parses a PKCS#11 URI. Rejects unknown, repeated and incorrectly encoded attributes, and URIs that contain a PIN.
 * Messages never contain values, because a value may be a misplaced secret.
 *
 * @throws ConfigError `ERR_SIGNER_URI`
 * @see RFC 7512 section 2.3
 */
export function parsePkcs11Uri(uri: string): Pkcs11Uri {
  if (typeof uri !== "string" || !/^pkcs11:/i.test(uri)) throw unusable('it does not begin with "pkcs11:"');
  const [path, query] = split(uri.slice("pkcs11:".length), "?");
  const attributes = parseAttributes(path, ";", pathValue, pathAttributes);
  const settings =
    query === undefined ? new Map<string, Buffer>() : parseAttributes(query, "&", queryValue, queryAttributes);
  const type = decodedText(attributes, "type");
  if (type !== undefined && type !== "private") throw unusable('"type" is not "private"');
  const id = attributes.get("id");
  const label = decodedText(attributes, "object");
  return {
    token: tokenOf(attributes),
    key: { ...(id !== undefined && { id: Uint8Array.from(id) }), ...(label !== undefined && { label }) },
    modulePath: modulePathOf(settings),
    pinFile: pinFileOf(settings),
  };
}

/** Parses a key's URI, which must have a label, an ID or both. @throws ConfigError `ERR_SIGNER_URI` */
export function parseKeyUri(uri: string): Pkcs11Uri {
  const parsed = parsePkcs11Uri(uri);
  if (parsed.key.id === undefined && parsed.key.label === undefined) {
    throw unusable('it does not name a key; add "object" (the key\'s label), "id", or both');
  }
  return parsed;
}

/** Parses the URI of the token on which new keys are generated. @throws ConfigError `ERR_SIGNER_URI` */
export function parseTokenUri(uri: string): Pkcs11Uri {
  const parsed = parsePkcs11Uri(uri);
  if (parsed.key.id !== undefined || parsed.key.label !== undefined) {
    throw unusable('it must name only the token for new keys, and not a key; remove "object" and "id"');
  }
  return parsed;
}

/** Returns the URI of a key on a token, without a module or a PIN. */
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

/** Adds the ID of a key that was found to its URI, because a different key may later get the same label. */
export function withId(
  uri: string,
  key: KeySelector,
  id: Uint8Array,
): { readonly uri: string; readonly selector: KeySelector } {
  if (key.id !== undefined || id.length === 0) return { uri, selector: key };
  const [path, ...query] = uri.split("?");
  return { uri: [`${path};id=${percentEncoded(id)}`, ...query].join("?"), selector: { ...key, id } };
}

/** Returns a token's name for messages: `the token "jwksd"`, `the token with serial "1"`. */
export function nameOfToken({ label, slotId, ...others }: TokenSelector): string {
  const all = Object.entries({ ...others, "slot-id": slotId }).filter(([, value]) => value !== undefined);
  const by = all.map(([name, value]) => `${name} ${JSON.stringify(value)}`);
  const which = by.length === 0 ? "" : ` with ${by.join(" and ")}`;
  return `the token${label === undefined ? "" : ` ${JSON.stringify(label)}`}${which}`;
}

/** Returns a key's name for messages: `object "login" and id %01`. */
export function nameOfKey({ label, id }: KeySelector): string {
  const object = label === undefined ? [] : [`object ${JSON.stringify(label)}`];
  return [...object, ...(id === undefined ? [] : [`id ${percentEncoded(id)}`])].join(" and ");
}

/** Percent-encodes bytes for a URI's `id` attribute. */
const percentEncoded = (bytes: Uint8Array): string =>
  Buffer.from(bytes).toString("hex").toUpperCase().replaceAll(/../g, "%$&");

function parseAttributes(
  part: string,
  separator: string,
  allowed: RegExp,
  known: ReadonlySet<string>,
): Map<string, Buffer> {
  const attributes = new Map<string, Buffer>();
  for (const attribute of part === "" ? [] : part.split(separator)) {
    const [name, value] = split(attribute, "=");
    if (name === "pin-value") throw unusable('it contains a PIN; use "pin-source" or the "pin" option instead');
    // A malformed name may be a secret, so the message omits it.
    if (!known.has(name))
      throw unusable(/^[a-z-]{1,24}$/.test(name) ? `"${name}" is not supported` : "it is malformed");
    if (value === undefined || !allowed.test(value)) throw unusable(`"${name}" is malformed (RFC 7512 section 2.3)`);
    if (value === "") throw unusable(`"${name}" is empty`);
    if (attributes.has(name)) throw unusable(`"${name}" is repeated`);
    attributes.set(name, decode(value));
  }
  return attributes;
}

const decode = (value: string): Buffer =>
  Buffer.from(
    value.replace(/%(..)/g, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16))),
    "latin1",
  );

function decodedText(attributes: ReadonlyMap<string, Buffer>, name: string): string | undefined {
  const bytes = attributes.get(name);
  if (bytes === undefined) return undefined;
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw unusable(`"${name}" is not UTF-8`);
  }
}

function tokenOf(attributes: ReadonlyMap<string, Buffer>): TokenSelector {
  const selector: Record<string, string | number> = {};
  for (const [name, member] of Object.entries(tokenAttributes)) {
    const value = decodedText(attributes, name);
    if (value !== undefined) selector[member] = value;
  }
  const slot = decodedText(attributes, "slot-id");
  if (slot !== undefined) {
    if (!/^\d{1,15}$/.test(slot)) throw unusable('"slot-id" is not a decimal number');
    selector["slotId"] = Number(slot);
  }
  if (Object.keys(selector).length === 0) {
    throw unusable('it does not name a token; add "token" (the token\'s label), "serial" or "slot-id"');
  }
  return selector;
}

function modulePathOf(settings: ReadonlyMap<string, Buffer>): string | undefined {
  const path = decodedText(settings, "module-path");
  if (path !== undefined && !isAbsolute(path)) throw unusable('"module-path" is not an absolute path');
  return path;
}

function pinFileOf(settings: ReadonlyMap<string, Buffer>): string | undefined {
  const source = decodedText(settings, "pin-source");
  if (source === undefined || isAbsolute(source)) return source;
  try {
    return fileURLToPath(source);
  } catch {
    throw unusable(
      '"pin-source" is not the absolute path of a file, with or without "file:"; for a command, use the "pin" option',
    );
  }
}

/** Splits a string at the first separator. */
function split(text: string, separator: string): [string, string | undefined] {
  const at = text.indexOf(separator);
  return at === -1 ? [text, undefined] : [text.slice(0, at), text.slice(at + 1)];
}

const unusable = (rule: string): ConfigError =>
  new ConfigError("ERR_SIGNER_URI", `this is not a usable PKCS#11 URI: ${rule}`);
