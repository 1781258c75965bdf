import { postgresError } from "./errors.ts";
import { defaultTimeoutMs, urlDriver } from "./pool.ts";
import { making } from "./schema.ts";

/**
 * Makes the tables that are missing, as the first write does: for a service whose user may not.
 *
 * @returns how messages call the database
 * @throws ConfigError `ERR_OPTION_INVALID`, `ERR_PACKAGE_MISSING`
 * @throws StoreError `ERR_STORE_UNAVAILABLE`
 */
export async function makeTables(url: string): Promise<string> {
  const driver = await urlDriver(url, defaultTimeoutMs);
  try {
    await driver.run(making, [], undefined);
    return driver.name;
  } catch (error) {
    throw postgresError(error, driver.name);
  } finally {
    await driver.end();
  }
}
