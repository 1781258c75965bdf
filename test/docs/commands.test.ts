import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import { promisify } from "node:util";
import { CommanderError } from "commander";
import { pages, textOf } from "../../scripts/samples.ts";
import type { Command } from "../../src/cli/command.ts";
import { withSubcommands } from "../../src/cli/help-command.ts";
import type { Io } from "../../src/cli/io.ts";
import { program } from "../../src/cli/run.ts";
import { part, skipWithout } from "../support/parts.ts";
import { type Scope, temporaryFolder } from "../support/service.ts";

// Checks that the command line accepts each jwksd command on the pages, with its arguments and options. blocks.test.ts runs the blocks that can
// be run in a test; some name accounts and machines that a test does not have.

/** Shell code in which `jwksd` records its arguments and no other program exists. It uses one write, because two commands of a pipe run concurrently. */
const recorder = `
  jwksd() { printf '%s\\0' "$@" $'\\36' >&3; }
  npx() { [ "$1 $2" != "--no-install jwksd" ] || { shift 2; jwksd "$@"; }; }
  npm() { [ "$1 $2 $3 $4" != "run -s jwksd --" ] || { shift 4; jwksd "$@"; }; }
  command_not_found_handle() { :; }
  exec 3>record
`;

/** Returns the arguments of each `jwksd` command in a script. */
async function commandsOf(t: Scope, script: string): Promise<string[][]> {
  const folder = await temporaryFolder(t);
  const env = { PATH: folder };
  // Other commands fail, and the script continues.
  await promisify(execFile)(part("bash"), ["--norc", "-c", `${recorder}\n${script}\n:`], { cwd: folder, env });
  const records = (await readFile(join(folder, "record"), "utf8")).split("\u001E\0");
  return records.slice(0, -1).map((record) => record.split("\0").slice(0, -1));
}

/** Returns the command line with commands that do nothing. */
async function idle(write: (text: string) => void, args: readonly string[]): Promise<Command> {
  const io: Io = { stdin: process.stdin, stdout: { write }, stderr: { write }, environment: {}, exitCode: 0 };
  const all = await program(io, args);
  for (const command of withSubcommands(all)) command.action(() => {});
  return all;
}

/** Returns the parser's errors for the commands in a script. */
async function refusals(t: Scope, script: string): Promise<string[]> {
  const refused: string[] = [];
  for (const args of await commandsOf(t, script))
    try {
      await (await idle(() => {}, args)).parseAsync(args, { from: "user" });
    } catch (error) {
      if (!(error instanceof CommanderError)) throw error;
      if (error.exitCode !== 0) refused.push(`jwksd ${args.join(" ")}: ${error.message}`);
    }
  return refused;
}

const fence = /^( *)```(\w*)\n([^]*?)^ *```$/gm;
/** Names of trace spans (docs/metrics.md), which look like commands. */
const noCommands = new Set(["jwksd fetch", "jwksd sign"]);

describe("the commands on the pages exist", { skip: skipWithout("bash") }, () => {
  // test/ops/deployments.test.ts runs the code blocks in docs/install.md, because they write to system folders.
  for (const page of pages.filter((page) => page !== "docs/install.md"))
    test(page, async (t) => {
      const text = textOf(page);
      const blocks = [...text.matchAll(fence)].filter(([, , language]) => language === "sh");
      assert.deepEqual(await refusals(t, blocks.map(([, , , block]) => block).join("\n")), []);
      const spans = [
        ...text.replaceAll(fence, "").matchAll(/`((?:(?:npx --no-install )?jwksd|npm run -s jwksd --) [^`]+)`/g),
      ].map(([, span = ""]) => span);
      const commands = new Set(spans.filter((span) => !noCommands.has(span)));
      // A sentence may name a command without its required arguments.
      const unknown = (await refusals(t, [...commands].join("\n"))).filter(
        (message) => !/ (?:missing|not specified)\b/.test(message),
      );
      assert.deepEqual(unknown, []);
    });

  test("no command downloads jwksd by name, because the name is not registered on npm yet and anyone could claim it", () => {
    for (const file of [...pages, "ops/doctor-action/action.yml", "examples/doctor-in-ci/workflow.yml"])
      assert.doesNotMatch(
        textOf(file),
        /\b(?:npx (?!--no-install )(?:-\S+ )*|npm (?:i|install|add|exec)\b[^\n`#]* )["']?jwksd(?![\w-])/,
        file,
      );
  });

  test("every npm run command on the pages has --, because otherwise npm reads the flags itself", () => {
    for (const page of pages) assert.doesNotMatch(textOf(page), /npm run (?!-s jwksd --)(?:-\S+ )*jwksd\b/, page);
  });

  test("the examples in each command's help are accepted", async (t) => {
    let text = "";
    for (const command of withSubcommands(await idle((more) => (text += more), ["completion"]))) command.outputHelp();
    const examples = [...text.matchAll(/^ *\$ ((?:.+ \\\n *)*\S.*?)(?: {2,}.*)?$/gm)].map(([, example]) => example);
    assert.ok(examples.length > 50, `${examples.length} examples`);
    assert.deepEqual(await refusals(t, examples.join("\n")), []);
  });
});
