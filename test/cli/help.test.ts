import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { guardDefinitions } from "../../src/service/config/guard-setting-definitions.ts";
import {
  type Definitions,
  flagName,
  settingDefinitions,
  settingHeadings,
  settingNames,
  variableName,
} from "../../src/service/config/setting-definitions.ts";
import { runCli, type Scope } from "../support/service.ts";

/** An item of a help text: its term, description and number of lines. */
interface Item {
  readonly term: string;
  readonly text: string;
  readonly lines: number;
}

interface Help {
  readonly command: string;
  readonly text: string;
  /** Items by heading, in order. */
  readonly groups: ReadonlyMap<string, readonly Item[]>;
}

/** Returns the lists of a help text by heading. */
function groupsOf(text: string): Help["groups"] {
  const lists = [...text.matchAll(/^(\S.*:)\n((?: {2}.*\n)+)/gm)];
  return new Map(
    lists.map(([, heading = "", list = ""]) => {
      const items = list.split(/\n(?= {2}\S)/).map((item) => {
        const [, term = "", text = ""] = /^ {2}(\S+)(?: \S+)*?(?: {2,}(.*))?$/s.exec(item.trimEnd()) ?? [];
        return {
          term: term.replace(/,$/, ""),
          text: text.replaceAll(/\s+/g, " "),
          lines: item.trimEnd().split("\n").length,
        };
      });
      return [heading, items];
    }),
  );
}

/** Returns the help of a command and of all its subcommands. */
async function helpOf(t: Scope, words: readonly string[] = []): Promise<Help[]> {
  const { code, stdout: text } = await runCli(t, [...words, "--help"]);
  assert.equal(code, 0);
  const groups = groupsOf(text);
  const subs = (groups.get("Commands:") ?? []).map(({ term }) => helpOf(t, [...words, term]));
  return [{ command: words.join(" "), text, groups }, ...(await Promise.all(subs)).flat()];
}

const headings: readonly string[] = ["Options:", ...settingHeadings];
/** Returns the heading of each setting that has one, by its flag. */
const headingsOf = (rows: Definitions): ReadonlyMap<string, string> =>
  new Map([
    ["--config", "Other settings:"],
    ...Object.entries(rows).flatMap(([name, { heading }]) =>
      heading === undefined ? [] : [[flagName(name), heading] as const],
    ),
  ]);
const shared = headingsOf(settingDefinitions);
const ofGuard = headingsOf(guardDefinitions);

test("each command's help fits in 80 columns and lists the command's own options first, then the shared options in groups, with each shared option on one line", async (t) => {
  const helps = await helpOf(t);
  assert.ok(helps.length >= 35, `${helps.length} commands`);
  const faults = helps.flatMap(({ command, text, groups }) => {
    const found = text.split("\n").flatMap((line) => (line.length > 80 ? [`${line.length} columns: ${line}`] : []));
    const lists = [...groups].filter(([heading]) => headings.includes(heading));
    const order = headings.filter((heading) => groups.has(heading));
    if (lists.map(([heading]) => heading).join() !== order.join())
      found.push(`groups: ${[...groups.keys()].join(" ")}`);
    // Options of other commands may have the name of a setting.
    const takesSettings = [...groups.values()].flat().some(({ term }) => term === "--config");
    for (const [heading, items] of lists)
      for (const { term, lines } of items) {
        const group = (takesSettings ? (command === "guard" ? ofGuard : shared).get(term) : undefined) ?? "Options:";
        if (group !== heading) found.push(`${term} is in ${heading}`);
        if (heading !== "Options:" && lines !== 1) found.push(`${term} takes ${lines} lines`);
      }
    return found.map((fault) => `jwksd ${command}: ${fault}`);
  });
  assert.deepEqual(faults, []);
});

const plain = (text: string): string => text.replaceAll(/\s+/g, " ");

describe("help OPTION", () => {
  test("shows a setting's description, default, variable, member and commands", async (t) => {
    const faults: string[] = [];
    for (const name of settingNames) {
      const { about, fallback }: { about: string; fallback?: unknown } = settingDefinitions[name];
      const { stdout } = await runCli(t, ["help", flagName(name)]);
      const parts = [about.slice(1), `Variable ${variableName(name)}`, `In --config "${name}"`, "Commands "];
      if (typeof fallback === "string" || typeof fallback === "number") parts.push(`Default ${fallback}`);
      if (name.endsWith("Seconds")) parts.push("Unit seconds");
      faults.push(...parts.filter((part) => !plain(stdout).includes(part)).map((part) => `${name} lacks ${part}`));
    }
    assert.deepEqual(faults, []);
  });

  test("shows any option's description and its command", async (t) => {
    const helps = await helpOf(t);
    const commands = new Set(helps.map(({ command }) => command));
    const faults: string[] = [];
    for (const { command, groups } of helps) {
      for (const { term, text } of groups.get("Options:") ?? []) {
        if (term === "-h" || term === "-V") continue;
        // Without dashes, this is a command of that name.
        const name = commands.has(term.slice(2)) ? term : term.slice(2);
        const optionHelp = plain((await runCli(t, ["help", name])).stdout);
        const [description = ""] = text.split(/ \([^()]*\)$/);
        if (!optionHelp.includes(description.slice(1)) || !optionHelp.includes(command))
          faults.push(`help ${name}: ${command}: ${description}`);
      }
    }
    assert.deepEqual(faults, []);
  });

  test("shows every meaning of an option, and the policy's defaults", async (t) => {
    const { stdout } = await runCli(t, ["help", "--max-stale-seconds"]);
    assert.match(
      stdout,
      /^--max-stale-seconds <n>\n\n.*cannot reach the store.*\n[^]*^Unit +seconds\nDefault +3600\n/m,
    );
    const yes = (await runCli(t, ["help", "yes"])).stdout;
    assert.match(
      yes,
      /make valid tokens fail\.\n[^]*\n--yes\n[^]*verifiers no longer use the target\.\n\nCommands +targets forget\n/,
    );
    const inCommand = (await runCli(t, ["help", "targets", "forget", "--yes"])).stdout;
    assert.match(
      inCommand,
      /^--yes\n\nConfirm that verifiers no longer use the target\.\n\nCommands +targets forget\n$/,
    );
    const level = (await runCli(t, ["help", "log-level"])).stdout;
    assert.match(level, /^Values +debug, info, warn, error, silent$/m);
  });

  test("fits in 80 columns", async (t) => {
    for (const name of ["store", "wrapping-key-file", "wait", "config"]) {
      const { stdout } = await runCli(t, ["help", name === "store" ? "--store" : name]);
      assert.deepEqual(
        stdout.split("\n").filter((line) => line.length > 80),
        [],
      );
    }
  });
});

test("help COMMAND prints the same text as COMMAND --help, even for a subcommand", async (t) => {
  const { stdout } = await runCli(t, ["keys", "revoke", "--help"]);
  assert.match(stdout, /^Usage: jwksd keys revoke /);
  for (const words of [
    ["help", "keys", "revoke"],
    ["keys", "help", "revoke"],
  ])
    assert.equal((await runCli(t, words)).stdout, stdout);
});

describe("help for an unknown name fails and suggests the closest name", () => {
  const rows = [
    { words: ["help", "NOSUCH"], hint: "to list the commands, run: jwksd help" },
    { words: ["help", "rotat"], hint: "Did you mean jwksd help rotate?" },
    { words: ["help", "--prot"], hint: "Did you mean jwksd help port?" },
    { words: ["help", "revoke"], hint: "Did you mean jwksd help keys revoke?" },
    { words: ["help", "keys", "imprt"], hint: "Did you mean jwksd help keys import?" },
    { words: ["keys", "help", "imprt"], hint: "Did you mean jwksd help keys import?" },
    { words: ["help", "JWKSD_PROT"], hint: "Did you mean jwksd help port?" },
    { words: ["help", "port", "serve"], hint: "to list the commands, run: jwksd help" },
  ];
  for (const { words, hint } of rows) {
    test(words.join(" "), async (t) => {
      const { code, stdout, stderr } = await runCli(t, words);
      assert.deepEqual({ code, stdout }, { code: 1, stdout: "" });
      assert.match(stderr, /^error: no command or option '.+'\n/);
      assert.ok(stderr.includes(`(${hint})`), stderr);
    });
  }
});
