import assert from "node:assert/strict";
import { test } from "node:test";
import lockFile from "../../package-lock.json" with { type: "json" };
import { isPermissive } from "../support/licenses.ts";

interface Locked {
  readonly resolved?: string;
  readonly integrity?: string;
  readonly license?: string;
  readonly dev?: boolean;
}

const packages = Object.entries(lockFile.packages as Readonly<Record<string, Locked>>).filter(([path]) => path !== "");

const namesOf = (found: typeof packages): string[] => found.map(([path]) => path);

test("each package has a hash and comes from the public registry", () => {
  const wrong = packages.filter(
    ([, { resolved = "https://registry.npmjs.org/", integrity = "" }]) =>
      !resolved.startsWith("https://registry.npmjs.org/") || !integrity.startsWith("sha512-"),
  );
  assert.deepEqual(namesOf(wrong), []);
});

test("the packages that users install have permissive licenses", () => {
  const installed = packages.filter(([, { dev }]) => dev !== true);
  assert.ok(installed.length > 0);
  assert.deepEqual(namesOf(installed.filter(([, { license = "" }]) => !isPermissive(license))), []);
});
