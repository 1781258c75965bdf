// How messages name what a URI selects. Texts are quoted, since a token may call itself anything.
import type { KeySelector, TokenSelector } from "./messages.ts";

/** A token by what was asked for: `the token "jwksd"`, `the token with serial "1"`. */
export function tokenName({ label, slotId, ...others }: TokenSelector): string {
  const all = Object.entries({ ...others, "slot-id": slotId }).filter(([, value]) => value !== undefined);
  const by = all.map(([name, value]) => `${name} ${JSON.stringify(value)}`);
  const which = by.length === 0 ? "" : ` with ${by.join(" and ")}`;
  return `the token${label === undefined ? "" : ` ${JSON.stringify(label)}`}${which}`;
}

/** A key in the attributes of its URI: `object "login" and id %01`. */
export function keyName({ label, id }: KeySelector): string {
  const object = label === undefined ? [] : [`object ${JSON.stringify(label)}`];
  return [...object, ...(id === undefined ? [] : [`id ${percentEncoded(id)}`])].join(" and ");
}

/** Bytes as the attribute `id` of a URI has them. */
export function percentEncoded(bytes: Uint8Array): string {
  return [...bytes].map((byte) => `%${byte.toString(16).padStart(2, "0").toUpperCase()}`).join("");
}
