import { JwksdError, IoError } from "./errors.ts";

const words: Readonly<Record<string, string>> = {
  EACCES: "permission denied",
  EDQUOT: "this user's disk quota is exhausted",
  ENOSPC: "the disk is full",
  EROFS: "the file system is read-only",
};

/** Returns the result of reading a file, or `undefined` if the file does not exist. */
export function unlessMissing<T>(reading: Promise<T>): Promise<T | undefined> {
  return reading.catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT" || error.code === "ENOTDIR") return undefined;
    throw error;
  });
}

/** Describes why a file could not be used, and includes the operating system's error code. */
export function fileErrorText(error: unknown): string {
  const { code = "unknown" } = error as NodeJS.ErrnoException;
  return words[code] === undefined ? code : `${words[code]}, ${code}`;
}

/** Reads a file or folder. @throws IoError `ERR_FILE_UNREADABLE` */
export async function reading<T>(path: string, action: () => Promise<T>): Promise<T> {
  try {
    return await action();
  } catch (error) {
    const reason = (error as NodeJS.ErrnoException).code ?? "unknown error";
    throw new IoError("ERR_FILE_UNREADABLE", `cannot read ${path} (${reason})`, { cause: error });
  }
}

/** Writes a file. @throws IoError `ERR_FILE_UNWRITABLE` */
export async function writing(file: string, action: () => Promise<void>): Promise<void> {
  try {
    await action();
  } catch (error) {
    if (error instanceof JwksdError) throw error;
    throw new IoError("ERR_FILE_UNWRITABLE", `cannot write ${file} (${fileErrorText(error)})`, { cause: error });
  }
}
