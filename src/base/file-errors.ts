const words: Readonly<Record<string, string>> = {
  EACCES: "permission is denied",
  EDQUOT: "the quota of this user is used up",
  ENOSPC: "the disk is full",
  EROFS: "the file system is read-only",
};

/** Why a file could not be used, in words where there are some, with the code of the system. */
export function fileErrorText(error: unknown): string {
  const { code = "unknown" } = error as NodeJS.ErrnoException;
  return words[code] === undefined ? code : `${words[code]}, ${code}`;
}
