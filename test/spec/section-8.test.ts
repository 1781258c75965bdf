import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { faces, startedOnce } from "../support/faces.ts";
import { defaultSetup } from "./table.ts";

// How a cache reads the header (RFC 9111 section 5.2, RFC 5861 section 3), in seconds.
const rows = [
  {
    section: "8",
    name: "cache lifetime in long mode",
    input: { rotation: false },
    expect: { "max-age": 3600, "stale-while-revalidate": 3600, "must-revalidate": false },
  },
  {
    section: "8",
    name: "cache lifetime in rotation mode",
    input: { rotation: true },
    expect: { "max-age": 300, "stale-while-revalidate": 0, "must-revalidate": true },
  },
];

for (const face of faces) {
  describe(face.name, () => {
    const started = startedOnce(face);
    for (const { section, name, input, expect } of rows) {
      test(`section ${section}: ${name}`, async () => {
        const target = await started({ ...defaultSetup, ...input });
        const value = (await target.send({ target: "/jwks" })).headers["cache-control"] ?? "";
        const seconds = (directive: string): number =>
          Number(new RegExp(`(?:^|, )${directive}=(\\d+)`).exec(value)?.[1] ?? 0);
        assert.deepEqual(
          {
            "max-age": seconds("max-age"),
            "stale-while-revalidate": seconds("stale-while-revalidate"),
            "must-revalidate": value.split(", ").includes("must-revalidate"),
          },
          expect,
        );
      });
    }
  });
}
