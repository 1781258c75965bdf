import { InvalidArgumentError } from "commander";

/** Adds a claim that is written `name=value` to those before it. */
export function addClaim(text: string, before: object = {}): object {
  const [, name, value] = /^([^=]+)=(.*)$/s.exec(text) ?? [];
  if (name === undefined || value === undefined) throw new InvalidArgumentError("A claim is written name=value.");
  if (name === "aud") throw new InvalidArgumentError("The audience is given with --aud.");
  if (Object.hasOwn(before, name)) throw new InvalidArgumentError(`There is a claim ${name} already.`);
  // A name in brackets, because "__proto__" is one like any other here.
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

/** A number that JavaScript would change is refused, where it stands in whatever JSON. */
function exactly(_name: string, value: unknown, { source = "" }: { readonly source?: string } = {}): unknown {
  if (typeof value === "number" && decimal(source) !== decimal(String(value))) {
    throw new InvalidArgumentError(`${source} would become ${value}. A text is written '"${source}"'.`);
  }
  return value;
}

/** Equal for texts of one number: its digits without zeros around them, and the power of ten of the last one. */
function decimal(text: string): string {
  const [, sign = "", whole = "", fraction = "", exponent = "0"] =
    /^(-?)(\d+)(?:\.(\d+))?(?:e([-+]?\d+))?$/i.exec(text) ?? [];
  const digits = `${whole}${fraction}`.replace(/^0+/, "");
  const significant = digits.replace(/0+$/, "");
  return significant === ""
    ? "0"
    : `${sign}${significant}e${Number(exponent) - fraction.length + digits.length - significant.length}`;
}
