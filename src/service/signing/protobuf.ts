/**
 * Fields of a message. If a field is repeated, its last value applies. Wire type 0 is a number, and wire type 2 is
 * bytes.
 */
export type Fields = ReadonlyMap<number, bigint | Uint8Array>;

const decoder = new TextDecoder("utf-8", { fatal: true });

/**
 * Reads a Protocol Buffers message. As the format requires, unknown fields are not an error.
 *
 * @throws RangeError if the bytes are not a message
 * @see https://protobuf.dev/programming-guides/encoding/
 */
export function readFields(bytes: Uint8Array): Fields {
  const fields = new Map<number, bigint | Uint8Array>();
  let at = 0;

  function varint(): bigint {
    let value = 0n;
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const byte = bytes[at];
      if (byte === undefined) break;
      at += 1;
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    throw new RangeError("a number is truncated or too long");
  }

  function skip(length: number): Uint8Array {
    at += length;
    if (at > bytes.length) throw new RangeError("a field is truncated");
    return bytes.subarray(at - length, at);
  }

  while (at < bytes.length) {
    const tag = varint();
    const wireType = Number(tag & 7n);
    const number = Number(tag >> 3n);
    if (wireType === 0) fields.set(number, varint());
    else if (wireType === 1) skip(8);
    else if (wireType === 2) fields.set(number, skip(Number(varint())));
    else if (wireType === 5) skip(4);
    else throw new RangeError(`unknown wire type ${wireType}`);
  }
  return fields;
}

/**
 * Returns a field of type `string`, or an empty string if the field is missing.
 *
 * @throws TypeError if the field is not a UTF-8 string
 */
export function stringField(fields: Fields, number: number): string {
  const value = fields.get(number) ?? new Uint8Array();
  if (typeof value === "bigint") throw new TypeError("expected a string, got a number");
  return decoder.decode(value);
}

/** Encodes a field of type `int64`, `bool` or `enum` whose value is not negative. */
export function numberField(number: number, value: number): Uint8Array {
  return Buffer.concat([varintOf(number * 8), varintOf(value)]);
}

/** Encodes a field of type `string` or `bytes`, or a message. */
export function bytesField(number: number, value: Uint8Array | string): Uint8Array {
  const bytes = Buffer.from(value as string);
  return Buffer.concat([varintOf(number * 8 + 2), varintOf(bytes.length), bytes]);
}

function varintOf(value: number): Uint8Array {
  const bytes: number[] = [];
  let remaining = value;
  for (; remaining >= 0x80; remaining = Math.floor(remaining / 0x80)) bytes.push((remaining % 0x80) | 0x80);
  return Uint8Array.from([...bytes, remaining]);
}
