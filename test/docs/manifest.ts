// node manifest.ts PATCH BEFORE AFTER: checks that kubeadm's JSON patch (RFC 6902) has the effect of the page's commands on a manifest.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { parse } from "yaml";

interface Pod {
  readonly spec: {
    readonly containers: readonly [{ command: string[]; readonly volumeMounts: readonly { readonly name: string }[] }];
    readonly volumes: readonly { readonly name: string; readonly hostPath: { readonly path: string } }[];
  };
}
interface Operation {
  readonly op: "test" | "replace" | "remove";
  readonly path: string;
  readonly value: string;
}

const [patch = "", before = "", after = ""] = process.argv.slice(2).map((file) => readFileSync(file, "utf8"));
const { command } = (parse(before) as Pod).spec.containers[0];
for (const { op, path, value } of JSON.parse(patch) as Operation[]) {
  const [, position] = /^\/spec\/containers\/0\/command\/(\d+)$/.exec(path) ?? assert.fail(path);
  const index = Number(position);
  if (op === "test") assert.equal(command[index], value);
  else command.splice(index, 1, ...(op === "replace" ? [value] : []));
}
const { containers, volumes } = (parse(after) as Pod).spec;
// The two flags are neighbors, so the order is the same.
assert.deepEqual(containers[0].command, command);
assert.deepEqual(containers[0].volumeMounts[0], { name: "jwksd", mountPath: "/run/jwksd" });
assert.deepEqual(volumes[0], { name: "jwksd", hostPath: { path: "/run/jwksd", type: "Directory" } });
