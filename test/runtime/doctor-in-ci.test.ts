import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, describe, test } from "node:test";
import { promisify } from "node:util";
import { parse } from "yaml";
import packageJson from "../../package.json" with { type: "json" };
import { bytes, published } from "../doctor/observed.ts";
import { listening } from "../support/listening.ts";
import { cliCommand, freePort } from "../support/service.ts";
import { complaints } from "../support/workflows.ts";

const file = (path: string): string => join(import.meta.dirname, "../..", path);
const read = (path: string): Promise<string> => readFile(file(path), "utf8");

interface Action {
  readonly inputs: Readonly<Record<string, { readonly default?: string }>>;
  readonly runs: {
    readonly steps: readonly { readonly run: string; readonly env: Readonly<Record<string, string>> }[];
  };
}
const action = parse(await read("ops/doctor-action/action.yml")) as Action;

/** Runs a script in a new folder. Returns its exit code, its output and the folder. */
async function runScript(t: TestContext, script: string, environment: Readonly<Record<string, string>>) {
  const folder = await mkdtemp(join(tmpdir(), "jwksd-doctor-ci-"));
  t.after(() => rm(folder, { recursive: true }));
  const env = {
    ...process.env,
    GITHUB_ACTION_PATH: file("ops/doctor-action"),
    GITHUB_STEP_SUMMARY: join(folder, "summary"),
    ...environment,
  };
  const run = promisify(execFile)("bash", ["-c", script], { cwd: folder, env });
  const { code = 0, stdout } = (await run.catch((error: { code: number; stdout: string }) => error)) as {
    code?: number;
    stdout: string;
  };
  return { code, stdout, folder };
}

/** Runs the step of the action with these inputs. */
function act(t: TestContext, inputs: Readonly<Record<string, string>>) {
  const [step] = action.runs.steps;
  const environment = Object.entries(step?.env ?? {}).map(([name, expression]) => {
    const [, input = ""] = /^\$\{\{ inputs\.([\w-]+) \}\}$/.exec(expression) ?? [];
    return [name, inputs[input] ?? action.inputs[input]?.default ?? ""];
  });
  return runScript(t, step?.run ?? "", Object.fromEntries(environment) as Record<string, string>);
}

/** Returns the lines that GitHub's runner would execute as commands, except `stop-commands`. */
function commandsIn(output: string): string[] {
  let end: string | undefined;
  return output.split("\n").filter((line) => {
    const isOver = end === undefined || line === end;
    const [, token] = (isOver && /^::stop-commands::(.+)$/.exec(line)) || [];
    const isCommand = isOver && line !== end && token === undefined && /^\s*::|##\[/.test(line);
    end = token === undefined ? (isOver ? undefined : end) : `::${token}::`;
    return isCommand;
  });
}

describe("the doctor in a pipeline", () => {
  test("the action passes, fails and writes its page in the same way as the doctor itself", async (t) => {
    const set = bytes({ keys: [{ ...published("a"), alg: undefined }] });
    const url = `http://127.0.0.1:${await listening(
      t,
      createServer((_, response) => response.end(set)),
    )}/jwks`;
    const insecure = { url, "allow-insecure": "true" };
    const passed = await act(t, { ...insecure, html: "findings.html" });
    assert.equal(passed.code, 0, passed.stdout);
    assert.match(await readFile(join(passed.folder, "findings.html"), "utf8"), /JWKS_ALG_MISSING/);
    assert.match(await readFile(join(passed.folder, "summary"), "utf8"), /^### jwksd doctor\n\n {4}advice {2}/);
    const strict = { ...insecure, "fail-on": "advice" };
    assert.equal((await act(t, strict)).code, 1);
    assert.equal((await act(t, { ...strict, skip: "JWKS_ALG_MISSING HTTP" })).code, 0);
    assert.equal((await act(t, { url })).code, 2);
  });

  test("the action neither executes an input nor parses it as an option", async (t) => {
    const { code, folder } = await act(t, { url: "--help", html: "$(touch owned)", skip: "JWKS" });
    assert.equal(code, 2);
    await assert.rejects(readFile(join(folder, "owned")));
  });

  test("text from a provider is never run as a command by the runner", async (t) => {
    const filler = "x".repeat(50);
    const keyOf = (command: string) => ({ ...published("a"), alg: 1, kid: `${filler} ${command}` });
    const keys = [keyOf("::error::"), keyOf("##[error]a")];
    const server = createServer((_, response) => response.end(bytes({ keys })));
    const url = `http://127.0.0.1:${await listening(t, server)}/jwks`;
    const { stdout } = await act(t, { url, "allow-insecure": "true" });
    assert.match(stdout, /^ +::error::[^]*^ +##\[error\]/m);
    assert.deepEqual(commandsIn(`${stdout}::notice::a`), ["::notice::a"]);
  });

  test("the workflow uses this version's action", async () => {
    assert.match(
      await read("examples/doctor-in-ci/workflow.yml"),
      new RegExp(`ops/doctor-action@v${packageJson.version}`),
    );
  });

  test("examples/doctor-in-ci/workflow.yml is a valid GitHub Actions workflow", async () => {
    const content = await read("examples/doctor-in-ci/workflow.yml");
    assert.deepEqual(await complaints("keys.yml", content), []);
  });

  test("a pipeline checks the provider that it has just started (examples/doctor-in-ci/run)", async (t) => {
    const environment = { JWKSD: cliCommand.join(" "), PORT: String(await freePort()) };
    const { code, stdout, folder } = await runScript(t, file("examples/doctor-in-ci/run"), environment);
    assert.equal(code, 0, stdout);
    assert.match(stdout, /no problems found\. Checked as an issuer/);
    assert.match(await readFile(join(folder, "findings.html"), "utf8"), /No problems found/);
  });
});
