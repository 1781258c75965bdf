// entity-tag = [ weak ] opaque-tag; opaque-tag = DQUOTE *etagc DQUOTE; etagc includes commas, but no spaces or quotes.
const entityTag = /(?:W\/)?"[\x21\x23-\x7e\x80-\xff]*"/y;
const separators = /[ \t]*(?:,[ \t]*)*/y;

/**
 * Reports whether `If-None-Match` calls for a 304 response, given a strong ETag.
 *
 * - A lone `*`: yes.
 * - A list that contains the ETag, byte for byte: yes.
 * - Weak members never match. RFC 9110 section 13.1.2 calls for weak comparison, but a full response is always correct.
 * - A malformed list matches nothing.
 *
 * @param value the field's value, with repeated lines joined by commas; `undefined` or `null` if the field is missing
 * @see RFC 9110 sections 13.1.2 (If-None-Match), 8.8.3 (entity tags) and 5.6.1.2 (lists)
 */
export function notModified(value: string | null | undefined, etag: string): boolean {
  if (value === undefined || value === null) return false;
  if (value === etag) return true;
  if (/^[ \t]*\*[ \t]*$/.test(value)) return true;
  return value.includes(etag) && listIncludes(value, etag);
}

function listIncludes(list: string, etag: string): boolean {
  let found = false;
  let position = skip(separators, list, 0);
  while (position < list.length) {
    const end = skip(entityTag, list, position);
    if (list.slice(position, end) === etag) found = true;
    position = skip(separators, list, end);
    // A tag or the comma after it is missing.
    if (position < list.length && !list.slice(end, position).includes(",")) return false;
  }
  return found;
}

function skip(pattern: RegExp, text: string, position: number): number {
  pattern.lastIndex = position;
  return pattern.test(text) ? pattern.lastIndex : position;
}
