import { ConfigError } from "./errors.ts";

/**
 * Returns the error to throw if `import()` of an optional package has failed.
 *
 * Write the import with a literal package name, directly in a `try` block. Bundlers then include the package if it is
 * installed, and still build if it is not: `try { sdk = await import("pg"); } catch (error) { throw importFailure("pg",
 * error); }`
 */
export function importFailure(packageName: string, error: unknown): unknown {
  const { code, message } = error as NodeJS.ErrnoException;
  // The second code is from Webpack and Turbopack. The package itself may be installed while one of its dependencies is
  // missing.
  const isMissing =
    (code === "ERR_MODULE_NOT_FOUND" || code === "MODULE_NOT_FOUND") &&
    [`'${packageName}'`, `'${packageName}/`].some((name) => message.includes(name));
  if (!isMissing) return error;
  return new ConfigError(
    "ERR_PACKAGE_MISSING",
    `the ${packageName} package is not installed; install it with: npm install ${packageName}`,
  );
}

/** Loads an optional package. Intended for code that is never bundled. @throws ConfigError `ERR_PACKAGE_MISSING` */
export async function loadPackage<T>(packageName: string, load: () => Promise<T>): Promise<T> {
  try {
    return await load();
  } catch (error) {
    throw importFailure(packageName, error);
  }
}
