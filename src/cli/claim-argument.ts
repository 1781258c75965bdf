import { InvalidArgumentError } from "commander";
import { isTooLarge } from "../base/json.ts";

/** Adds a claim, written as `name=value`, to the previous claims. */
export function addClaim(text: string, before: object = {}): object {
  const [, name, value] = /^([^=]+)=(.*)$/s.exec(text) ?? [];
  if (name === undefined || value === undefined) throw new InvalidArgumentError("Write a claim as name=value.");
  if (name === "aud") throw new InvalidArgumentError("Set the audience with --aud.");
  if (Object.hasOwn(before, name)) throw new InvalidArgumentError(`The claim ${name} is given more than once.`);
  // A computed name, so that "__proto__" is an ordinary member.
  return { ...before, [name]: jsonOrString(value) };
}

function jsonOrString(text: string): unknown {
  try {
    return JSON.parse(text, refuseTooLarge);
  } catch (error) {
    if (error instanceof InvalidArgumentError) throw error;
    return text;
  }
}

/** Rejects a number that JSON cannot represent exactly. */
function refuseTooLarge(_name: string, value: unknown, context?: { readonly source?: string }): unknown {
  if (!isTooLarge(value, context?.source)) return value;
  throw new InvalidArgumentError(
    `${context?.source} is beyond 2^53 - 1. Write it as a string: '"${context?.source}"'.`,
  );
}
