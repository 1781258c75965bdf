import { randomUUID } from "node:crypto";
import { readFile, rename, rm, writeFile } from "node:fs/promises";
import { dirname } from "node:path";
import { unlessMissing } from "../base/file-errors.ts";
import { makeFolder } from "./new-files.ts";

/** A text file that only its owner can read. */
export interface TextFile {
  /** Path of the file. */
  readonly name: string;
  /** Returns the text, or `undefined` if the file does not exist. @throws file system errors */
  read(): Promise<string | undefined>;
  /** Replaces the text atomically, and creates missing folders. @throws file system errors */
  write(text: string): Promise<void>;
}

/** Returns a file as storage for a saved set. */
export function textFile(path: string): TextFile {
  return {
    name: path,
    read: () => unlessMissing(readFile(path, "utf8")),
    async write(text) {
      await makeFolder(dirname(path));
      const draft = `${path}.${randomUUID()}`;
      try {
        await writeFile(draft, text, { mode: 0o600 });
        await rename(draft, path);
      } catch (error) {
        await rm(draft, { force: true });
        throw error;
      }
    },
  };
}
