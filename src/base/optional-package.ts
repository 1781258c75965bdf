import { ConfigError } from "./errors.ts";

/**
 * Loads an optional package when it is needed.
 *
 * @throws ConfigError `ERR_PACKAGE_MISSING`
 */
export async function loadPackage<T>(packageName: string, load: () => Promise<T>): Promise<T> {
  try {
    return await load();
  } catch (error) {
    // The package may be installed and lack a dependency of its own.
    const { code, message } = error as NodeJS.ErrnoException;
    if (code !== "ERR_MODULE_NOT_FOUND" || !message.includes(`'${packageName}'`)) throw error;
    throw new ConfigError(
      "ERR_PACKAGE_MISSING",
      `the package ${packageName} is needed and not installed; install it with: npm install ${packageName}`,
    );
  }
}
