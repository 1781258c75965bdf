import { IoError } from "../base/errors.ts";
import { type Io, printNotice } from "./io.ts";
import { run } from "./run.ts";

const { stdout, stderr, env: environment, argv } = process;
const io: Io = {
  // Opened only when it is read: opening standard input takes time, and few commands need it.
  get stdin() {
    return process.stdin;
  },
  stdout,
  stderr,
  environment,
  exitCode: 0,
};

// A closed terminal, a closed pipe or a full disk must not stop the service.
let outputError: NodeJS.ErrnoException | undefined;
stdout.on("error", (error) => (outputError ??= error));
stderr.on("error", () => {});
process.on("exit", checkOutput);

process.exitCode = await run(argv.slice(2), io);

/**
 * Makes a command fail if its output was lost, unless the reader closed the pipe, as `head` does. Does not stop the
 * service.
 */
function checkOutput(): void {
  // With --help, the process exits before the error event.
  const failure: NodeJS.ErrnoException | null = outputError ?? stdout.errored;
  const code = failure?.code;
  if (code === undefined || code === "EPIPE" || argv[2] === "serve") return;
  // A failed command has already reported an error, perhaps this one.
  if (process.exitCode !== io.exitCode) return;
  const error = new IoError("ERR_FILE_UNWRITABLE", `cannot write to standard output (${code})`);
  printNotice(io, `${error.message} [${error.code}]`);
  process.exitCode = 1;
}
