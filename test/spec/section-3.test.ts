import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { faces, startedOnce } from "../support/faces.ts";
import { ecKey, named } from "../support/keys.ts";
import { checkTable, defaultSetup, expectedSet, notModified, ok, withoutBody } from "./table.ts";

const document = expectedSet(defaultSetup.keys);
const target = "/jwks";
const headers = [["If-None-Match", document.etag]] as const;

checkTable([
  { section: "3, long cache", name: "no predicate", input: { target }, expect: ok(document, "long") },
  {
    section: "3, long cache",
    name: "the predicate returns false",
    setup: { rotation: false },
    input: { target },
    expect: ok(document, "long"),
  },
  {
    section: "3, rotation",
    name: "the predicate returns true",
    setup: { rotation: true },
    input: { target },
    expect: ok(document, "rotation"),
  },
  {
    section: "3, rotation",
    name: "HEAD",
    setup: { rotation: true },
    input: { method: "HEAD", target },
    expect: withoutBody(ok(document, "rotation")),
  },
  {
    section: "3, rotation",
    name: "304, with the same ETag as in long mode",
    setup: { rotation: true },
    input: { target, headers },
    expect: notModified(document, "rotation"),
  },
]);

const [a, b, c] = [named("a"), named("b"), named("c")];
// Each differs from the first by one thing.
const changes = [
  { name: "the set itself", input: { keys: [a, b] } },
  { name: "a kid", input: { keys: [named("renamed", ecKey("a")), b] } },
  { name: "a key", input: { keys: [named("a", ecKey("c")), b] } },
  { name: "a key more", input: { keys: [a, b, c] } },
  { name: "a key less", input: { keys: [a] } },
  { name: "the order", input: { keys: [b, a] } },
  { name: "an encryption key more", input: { keys: [a, b], encryptionKeys: [c] } },
  { name: "another alg", input: { keys: [a, b], encryptionKeys: [{ ...c, alg: "ECDH-ES+A128KW" }] } },
];

for (const face of faces) {
  describe(face.name, () => {
    const started = startedOnce(face);
    test("section 3: the ETag changes whenever the body changes", async () => {
      const etags = await Promise.all(
        changes.map(async ({ input }) => (await (await started(input)).send({ target })).headers["etag"]),
      );
      assert.deepEqual(
        etags,
        changes.map(({ input }) => expectedSet(input.keys, input.encryptionKeys).etag),
      );
      assert.equal(new Set(etags).size, changes.length);
    });
  });
}
