import { execFile } from "node:child_process";
import { cp, glob, mkdir, symlink, writeFile } from "node:fs/promises";
import { basename, delimiter, join, resolve } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { skipWithout, skipped } from "../support/parts.ts";
import { temporaryFolder } from "../support/service.ts";
import { isSoak } from "../support/soak.ts";
import { workflow } from "../support/workflows.ts";

const root = resolve(import.meta.dirname, "../..");
const skip =
  skipWithout("buildah", "git") ||
  (process.getuid?.() !== 0 && skipped("the release's dry run; without root, buildah requires subordinate ids"));

/** The programs that a job would install, or run as another user. */
const standIns = { sudo: 'exec "$@"', "apt-get": "" };
/** Registry settings with which npm finds no published version, after one attempt. */
const noRegistry = { npm_config_registry: "http://127.0.0.1:9/", npm_config_fetch_retries: "0" };

// Each job has its own folder, as it has its own machine: the build has a copy of the sources, later jobs only the artifacts.
if (isSoak)
  test("the release workflow completes as a dry run, except for the forge's own actions", { skip }, async (t) => {
    const { jobs } = await workflow(".github/workflows/release.yml");
    const folder = await temporaryFolder(t);
    const [programs, artifacts] = [join(folder, "programs"), join(folder, "artifacts")];
    await mkdir(programs);
    for (const [name, line] of Object.entries(standIns))
      await writeFile(join(programs, name), `#!/bin/sh\n${line}\n`, { mode: 0o755 });
    const { NODE_TEST_CONTEXT: _runner, ...inherited } = process.env;
    const env = {
      ...inherited,
      ...noRegistry,
      PATH: [programs, join(root, "node_modules/.bin"), process.env["PATH"]].join(delimiter),
      IS_RELEASE: "false",
    };

    for (const [name, { steps }] of Object.entries(jobs)) {
      const cwd = join(folder, name);
      const storage = join(folder, `${name}.conf`);
      const lines = ['driver = "vfs"', ...["graphroot", "runroot"].map((each) => `${each} = "${cwd}.${each}"`)];
      await writeFile(storage, ["[storage]", ...lines].join("\n"));
      const shell = (command: string, at = cwd) =>
        promisify(execFile)("bash", ["-ec", command], {
          cwd: at,
          env: { ...env, CONTAINERS_STORAGE_CONF: storage },
          maxBuffer: 2 ** 26,
        });
      await mkdir(cwd);
      for (const { uses = "", run, if: condition, with: { name: artifact = "", path = "" } = {} } of steps) {
        if (uses.startsWith("actions/checkout@")) {
          await shell(`git ls-files -z -co --exclude-standard | xargs -0 cp -P --parents -t '${cwd}'`, root);
          await symlink(join(root, "node_modules"), join(cwd, "node_modules"));
        }
        if (uses.startsWith("actions/upload-artifact@"))
          for await (const file of glob(path.trim().split("\n"), { cwd }))
            await cp(join(cwd, file), join(artifacts, "X64", basename(file)), { recursive: true });
        if (uses.startsWith("actions/download-artifact@"))
          await cp(join(artifacts, artifact), cwd, { recursive: true });
        if (run !== undefined && condition === undefined) await shell(run);
      }
      // The files for arm64 are the same ones, renamed.
      const rename = "for f in jwksd-*; do mv $f ${f/x64/arm64}; done; sed -i s/x64/arm64/ *.sha256";
      if (name === "build") await shell(`cp -R X64 ARM64; cd ARM64; ${rename}`, artifacts);
    }
  });
