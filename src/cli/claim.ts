import { InvalidArgumentError } from "commander";
import { isTooLarge } from "../base/json.ts";

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

/** Refuses a number in JSON that would not stay what it is. */
function exactly(_name: string, value: unknown, context?: { readonly source?: string }): unknown {
  if (!isTooLarge(value, context?.source)) return value;
  throw new InvalidArgumentError(`${context?.source} is beyond 2^53 - 1. Write it as a text: '"${context?.source}"'.`);
}
