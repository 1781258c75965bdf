import { isPrivateText, privateMembers } from "./checks/private.ts";

/** A document as JSON in lines, to be shown to others: without the values of private members and the texts of private keys. */
export function removed(document: unknown): string {
  try {
    return JSON.stringify(
      document,
      (member, value: unknown) =>
        privateMembers.includes(member) || (typeof value === "string" && isPrivateText(value)) ? "(removed)" : value,
      2,
    );
  } catch {
    // Only depth can be the cause.
    return "It is nested too deeply to be shown.";
  }
}
