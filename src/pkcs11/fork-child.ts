import { type ChildProcess, fork } from "node:child_process";

const childModule = new URL(`./child${import.meta.url.endsWith(".ts") ? ".ts" : ".js"}`, import.meta.url);

/** Starts the process that loads the module. It ends when this process does. */
export function forkChild(sessions: number, hiddenVariables: readonly string[]): ChildProcess {
  return fork(childModule, {
    serialization: "advanced",
    execArgv: [],
    env: childEnvironment(sessions, hiddenVariables),
    // Its standard input is how it knows that this process is alive. What a module prints is no output of this program.
    stdio: ["pipe", "ignore", "inherit", "ipc"],
  });
}

/**
 * What the module may need of this process's environment: not the settings and secrets of jwksd, and nothing that would load more
 * code beside the PIN.
 */
function childEnvironment(sessions: number, hidden: readonly string[]): NodeJS.ProcessEnv {
  const entries = Object.entries(process.env).filter(
    ([name]) => !name.startsWith("JWKSD_") && name !== "NODE_OPTIONS" && !hidden.includes(name),
  );
  // Each signature holds a thread while the module makes it; the rest is for what Node itself does.
  return { ...Object.fromEntries(entries), UV_THREADPOOL_SIZE: String(sessions + 2) };
}
