import { InvalidArgumentError } from "commander";

/** Adds a claim, given as `name=value`, to the earlier ones. */
export function addClaim(text: string, before: object = {}): object {
  const [, name, value] = /^([^=]+)=(.*)$/s.exec(text) ?? [];
  if (name === undefined || value === undefined) throw new InvalidArgumentError("A claim is written name=value.");
  if (name === "aud") throw new InvalidArgumentError("The audience is given with --aud.");
  if (Object.hasOwn(before, name)) throw new InvalidArgumentError(`There is a claim ${name} already.`);
  // A computed name, so that "__proto__" is an ordinary member.
  return { ...before, [name]: jsonOrText(value) };
}

function jsonOrText(text: string): unknown {
  try {
    return JSON.parse(text, exactly);
  } catch (error) {
    if (error instanceof InvalidArgumentError) throw error;
    return text;
  }
}

/** Refuses a number in JSON that JavaScript would round. */
function exactly(_name: string, value: unknown, { source = "" }: { readonly source?: string } = {}): unknown {
  if (typeof value === "number" && decimal(source) !== decimal(String(value))) {
    throw new InvalidArgumentError(`JavaScript would round ${source} to ${value}. Write it as a text: '"${source}"'.`);
  }
  return value;
}

/** A canonical text of a number: its significant digits, and the power of ten of the last one. */
function decimal(text: string): string {
  const [, sign = "", whole = "", fraction = "", exponent = "0"] =
    /^(-?)(\d+)(?:\.(\d+))?(?:e([-+]?\d+))?$/i.exec(text) ?? [];
  const digits = `${whole}${fraction}`.replace(/^0+/, "");
  const significant = digits.replace(/0+$/, "");
  return significant === ""
    ? "0"
    : `${sign}${significant}e${Number(exponent) - fraction.length + digits.length - significant.length}`;
}
