import { Option } from "commander";
import { IoError } from "../base/errors.ts";
import { generateKey } from "../node/generate-key.ts";
import { writeNewFile } from "../node/new-files.ts";
import { Command } from "./command.ts";
import { type Io, print } from "./io.ts";

export function commandOf(io: Io): Command {
  return new Command("keygen")
    .option("--out <file>", "file to create, with mode 0600 (default: standard output)")
    .addOption(
      new Option("--format <format>", "format: private JWK or PKCS#8 PEM").choices(["jwk", "pem"]).default("jwk"),
    )
    .notes(`
Only the owner can read the file, and an existing file is never overwritten. The
key's kid is its RFC 7638 thumbprint. If jwksd serve --keys reads a folder, the
active key is the one in the file whose name sorts last.

Examples:
  $ jwksd keygen --out keys/$(date +%F).jwk
  $ jwksd keygen --format pem > key.pem`)
    .action(async ({ out, format }: { out?: string; format: "jwk" | "pem" }) => {
      const { kid, text } = await generateKey(format);
      if (out === undefined) {
        await printKey(io, text);
      } else {
        await writeNewFile(out, text);
        print(io, `wrote ${out}, kid ${kid}`);
      }
    });
}

/** Prints a key. @throws IoError `ERR_FILE_UNWRITABLE` if standard output cannot be written to */
function printKey({ stdout }: Io, text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    stdout.write(text, (error?: NodeJS.ErrnoException | null) => {
      if (!error) return resolve();
      const message = `cannot write to standard output (${error.code})`;
      reject(new IoError("ERR_FILE_UNWRITABLE", message, { cause: error }));
    });
  });
}
