import { randomUUID } from "node:crypto";
import { readFile, rename, rm, writeFile } from "node:fs/promises";
import { dirname } from "node:path";
import { unlessMissing } from "../base/file-errors.ts";
import { makeFolder } from "./folders.ts";

/** A file with one text, which only its owner can read. */
export interface TextFile {
  /** Path of the file. */
  readonly name: string;
  /** Returns the text; `undefined` if there is no file. @throws errors of the file system */
  read(): Promise<string | undefined>;
  /** Replaces the text as a whole, or not at all. Creates missing folders. @throws errors of the file system */
  write(text: string): Promise<void>;
}

/** Returns a file as the storage of a saved set. */
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
