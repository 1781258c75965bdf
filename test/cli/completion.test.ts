import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import { part, skipWithout } from "../support/parts.ts";
import { eventually, runCli, temporaryFolder } from "../support/service.ts";

/** A shell that loads a file at its start, with the lines that the file needs. */
interface Shell {
  readonly rcFile: string;
  readonly rc: readonly string[];
  /** The command line of the shell, which gets the path of its program. */
  readonly start: (program: string) => string;
}

const jwksd = `jwksd() { printf 'GOT[%s]\\n' "$*"; }`;
const shells: Readonly<Record<string, Shell>> = {
  bash: {
    rcFile: "rc",
    rc: ["PS1='READY> '", jwksd, "source ./completion"],
    start: (program) => `${program} --noprofile --rcfile rc -i`,
  },
  zsh: {
    rcFile: ".zshrc",
    rc: ["PS1='READY> '", jwksd, "autoload -U compinit", "compinit -u -D", "source ./completion"],
    start: (program) => `${program} -d -i`,
  },
  fish: {
    rcFile: "rc",
    rc: [
      "function fish_prompt; echo -n 'READY> '; end",
      `function jwksd; printf 'GOT[%s]\\n' "$argv"; end`,
      "source ./completion",
    ],
    start: (program) => `${program} --no-config -i -C 'source rc'`,
  },
};

/** What is typed after `jwksd`, with the Tab key, and what the command then gets. */
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

for (const [name, { rcFile, rc, start }] of Object.entries(shells)) {
  describe(`completion in ${name}`, { skip: skipWithout(name, "script"), timeout: 60_000 }, () => {
    test("completes commands, options, values and files", async (t) => {
      const folder = await temporaryFolder(t);
      await mkdir(join(folder, "my-folder"));
      await writeFile(join(folder, "my-settings.json"), "{}");
      await writeFile(join(folder, "completion"), (await runCli(t, ["completion", name])).stdout);
      await writeFile(join(folder, rcFile), rc.join("\n"));

      // It makes the terminal that the shell wants to talk to.
      const child = spawn(part("script"), ["-qec", start(part(name)), "/dev/null"], {
        cwd: folder,
        env: { PATH: process.env["PATH"], HOME: folder, TERM: "dumb", LANG: "C.UTF-8" },
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
        // zsh writes --name=value, and no slash where a folder is the last word.
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

test("a shell that jwksd does not know is an error that names those it knows", async (t) => {
  const { code, stdout, stderr } = await runCli(t, ["completion", "csh"]);
  assert.deepEqual({ code, stdout }, { code: 1, stdout: "" });
  assert.match(stderr, /bash, zsh, fish/);
});
