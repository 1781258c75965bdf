import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import { part, skipWithout } from "../support/parts.ts";
import { eventually, runCli, temporaryFolder } from "../support/service.ts";

/** Shells, with the arguments to start in a terminal with the file rc, and the lines of rc. */
const shells = {
  bash: { start: "--noprofile --rcfile rc -i", rc: ["PS1='READY> '"] },
  zsh: { start: "-d -i", rc: ["PS1='READY> '", "autoload -U compinit", "compinit -u -D"] },
  fish: { start: "--no-config -i -C 'source rc'", rc: ["function fish_prompt; echo -n 'READY> '; end"] },
};

/** Returns the line in docs/install.md for a shell. */
async function documented(shell: string): Promise<string> {
  const page = await readFile(join(import.meta.dirname, "../../docs/install.md"), "utf8");
  const [line] = new RegExp(`^.*jwksd completion ${shell}.*$`, "m").exec(page) ?? [];
  return line ?? assert.fail(`docs/install.md has no line for ${shell}`);
}

/** Text typed after `jwksd`, with the Tab key, and the arguments that the command then receives. */
const rows = [
  ["rot\t", "rotate"],
  ["keys rev\t--dry\t", "keys revoke --dry-run"],
  ["serve --log-l\tdeb\t", "serve --log-level debug"],
  ["rotate --use=e\t", "rotate --use enc"],
  ["keygen --form\tp\t", "keygen --format pem"],
  ["serve --conf\tmy-s\t", "serve --config my-settings.json"],
  ["serve --dat\tmy-f\t", "serve --data my-folder"],
  ["doctor my-s\t", "doctor my-settings.json"],
  ["completion f\t", "completion fish"],
  ["help dem\t", "help demo"],
] as const;

for (const [name, { start, rc }] of Object.entries(shells)) {
  describe(`completion in ${name}`, { skip: skipWithout(name, "script"), timeout: 60_000 }, () => {
    test("completes commands, options, values and files", async (t) => {
      const folder = await temporaryFolder(t);
      await mkdir(join(folder, "my-folder"));
      await writeFile(join(folder, "my-settings.json"), "{}");
      // Values of an option are not files.
      await writeFile(join(folder, "debts"), "");
      await writeFile(join(folder, "script"), (await runCli(t, ["completion", name])).stdout);
      // Prints its arguments.
      const jwksd = `#!/bin/sh\n[ "$1" != completion ] || cat "$HOME/script"\nprintf 'GOT[%s]\\n' "$*" >&2\n`;
      await writeFile(join(folder, "jwksd"), jwksd, { mode: 0o755 });
      const lines = [...rc, await documented(name)].join("\n");
      // zsh reads .zshrc.
      for (const file of ["rc", ".zshrc"]) await writeFile(join(folder, file), lines);

      // `script` provides the terminal that the shell expects.
      const child = spawn(part("script"), ["-qec", `${part(name)} ${start}`, "/dev/null"], {
        cwd: folder,
        env: { PATH: `${folder}:${process.env["PATH"]}`, HOME: folder, TERM: "dumb", LANG: "C.UTF-8" },
        stdio: ["pipe", "pipe", "inherit"],
      });
      t.after(() => child.kill("SIGKILL"));
      let output = "";
      child.stdout.setEncoding("utf8").on("data", (chunk: string) => (output += chunk));

      const found: string[] = [];
      for (const [typed] of rows) {
        await eventually("the prompt", () => output.includes("READY> "));
        output = "";
        child.stdin.write(`jwksd ${typed}\n`);
        await eventually("the command", () => /GOT\[.*\][^]*READY> /.test(output));
        // zsh writes --name=value, and no slash if a folder is the last word.
        found.push((/GOT\[(.*)\]/.exec(output)?.[1] ?? "").replaceAll("=", " ").replace(/\/$/, ""));
      }
      child.stdin.write("exit\n");
      await once(child, "exit");
      assert.deepEqual(
        found,
        rows.map(([, expected]) => expected),
      );
    });
  });
}

test("rejects an unknown shell and names the supported ones", async (t) => {
  const { code, stdout, stderr } = await runCli(t, ["completion", "csh"]);
  assert.deepEqual({ code, stdout }, { code: 1, stdout: "" });
  assert.match(stderr, /bash, zsh, fish/);
});
