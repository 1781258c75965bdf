import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { cp, mkdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import type { TestContext } from "node:test";
import { promisify } from "node:util";
import { mounted } from "./namespaces.ts";
import { packageFromSources } from "./samples.ts";
import { cliCommand, temporaryFolder, withoutSettings } from "./service.ts";

// Runs commands from the pages verbatim: as root in a namespace with its own system folders and network, in a
// folder like a clone after the build.

export const root = resolve(import.meta.dirname, "../..");

/** Returns the shell blocks of a page by section, in order. */
export async function sections(page: string): Promise<ReadonlyMap<string, readonly string[]>> {
  const text = await readFile(join(root, page), "utf8");
  // A line that begins with # inside a block is not a heading.
  const all = text.split(/^#{1,3} (?=\S.*\n\n)/m).slice(1);
  return new Map(
    all.map((section) => {
      const [title = ""] = section.split("\n", 1);
      const blocks = [...section.matchAll(/^( *)```sh\n([^]*?)^ *```$/gm)];
      return [title, blocks.map(([, indent = "", block = ""]) => block.replaceAll(new RegExp(`^${indent}`, "gm"), ""))];
    }),
  );
}

/** A block that waits for something that never happens is stopped after this time, and its output is shown. */
const limitMs = 300_000;

export interface Stage {
  /** Folders with programs, which precede the system's on PATH. */
  readonly programs: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** Whether to use the system's network, for servers that were started outside. */
  readonly isOnNetwork?: boolean;
}

/** Runs lines of shell until one fails. They run in the `clone` folder, and $STATE is the `state` folder. */
export async function runBlocks(
  t: TestContext,
  lines: readonly string[],
  { programs, env = {}, isOnNetwork = false }: Stage,
): Promise<{ readonly stdout: string; readonly state: string }> {
  const folder = await temporaryFolder(t);
  const [clone, state, etc] = [join(folder, "clone"), join(folder, "state"), join(folder, "etc")];
  const app = join(clone, "dist/archive/jwksd");
  for (const made of [app, join(clone, "scripts"), state, etc]) await mkdir(made, { recursive: true });
  for (const part of ["ops", "examples/docs"]) await cp(join(root, part), join(clone, part), { recursive: true });
  await packageFromSources(clone);
  const real = `#!/bin/sh\nexec ${cliCommand.join(" ")} "$@"\n`;
  await writeFile(join(app, "jwksd"), real, { mode: 0o755 });
  await promisify(execFile)("tar", ["-czf", "jwksd-linux-x64.tar.gz", "jwksd"], { cwd: dirname(app) });
  const buildImage = "#!/bin/sh\ninstall -m 755 dist/archive/jwksd/jwksd /usr/local/bin/jwksd\n";
  await writeFile(join(clone, "scripts/build-image"), buildImage, { mode: 0o755 });
  const own = [
    `cp -R /etc/. ${etc} 2>/dev/null || true; mount --bind ${etc} /etc`,
    "for each in /usr/local/bin /var/lib /opt /run /srv; do mount -t tmpfs tmpfs $each; done",
    ...(isOnNetwork ? [] : ["ip link set lo up"]),
    `cd ${clone}`,
  ];
  const script = join(folder, "script");
  await writeFile(script, lines.join("\n"));
  const namespaces = [...(isOnNetwork ? [] : ["-n"]), "--pid", "--fork", "--kill-child", "--mount-proc"];
  const [command, ...args] = mounted(own.join("; "), folder, namespaces);
  const path = [...programs.map((each) => join(root, each)), "/usr/local/bin", process.env["PATH"]].join(":");
  // SIGTERM does not end unshare. The processes in its namespace end with it.
  const running = promisify(execFile)(command, [...args, "bash", "-eux", "-o", "pipefail", script], {
    killSignal: "SIGKILL",
    timeout: limitMs,
    env: { ...withoutSettings(process.env), ROOT: root, CLONE: clone, STATE: state, PATH: path, ...env },
  });
  t.signal.addEventListener("abort", () => running.child.kill("SIGKILL"));
  const { stdout } = await running.catch((error: { killed: boolean; stdout: string; stderr: string }) =>
    assert.fail(
      `a block ${error.killed ? "takes too long" : "failed"}\n${error.stdout.slice(-1_000)}\n${error.stderr.slice(-1_000)}`,
    ),
  );
  return { stdout, state };
}
