import { mkdir, readdir } from "node:fs/promises";
import { join } from "node:path";
import { ServiceError } from "../errors.ts";
import { isKeyFileName } from "../node/key-files.ts";
import { generateKey, writeNewFile } from "../node/generate.ts";

/** Where the signing keys are in a data folder. */
export const keysFolder = (data: string): string => join(data, "keys");

/**
 * The folder of signing keys in the data folder; the first start makes both (mode 0700) and one key (mode 0600). A data folder
 * that exists already keeps its mode: it may be anybody's.
 *
 * @throws ServiceError `ERR_FILE_UNWRITABLE`
 */
export async function prepareDataFolder(data: string): Promise<{ readonly keys: string; readonly generated: boolean }> {
  const keys = keysFolder(data);
  try {
    await mkdir(keys, { recursive: true, mode: 0o700 });
    // What is not a key file may be what another first start is just writing.
    if ((await readdir(keys)).some(isKeyFileName)) return { keys, generated: false };
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new ServiceError("ERR_FILE_UNWRITABLE", `cannot make the data folder ${data} (${code})`, { cause: error });
  }
  const { text } = await generateKey("jwk");
  // Of several first starts at once, one wins, and the others use its key.
  const file = join(keys, `${new Date().toISOString().slice(0, 10)}.jwk`);
  const generated = await writeNewFile(file, text).then(
    () => true,
    (error: unknown) => {
      if (error instanceof ServiceError && error.code === "ERR_FILE_EXISTS") return false;
      throw error;
    },
  );
  return { keys, generated };
}
