import { readKeyset } from "../node/key-files.ts";
import { createProvider } from "../provider/provider.ts";
import type { Claims, SignOptions } from "../token/sign.ts";
import { keysFolder } from "./data-folder.ts";
import { issuerOf } from "./publisher.ts";
import type { Settings } from "./settings.ts";

/**
 * Signs a token with the active key of a configuration of `jwksd serve`; nothing has to be running.
 *
 * @throws ServiceError `ERR_FILE_UNREADABLE`, `ERR_NO_KEY_FILES`
 * @throws TokenError `ERR_CLAIMS_INVALID`
 * @throws ConfigError, KeyMaterialError see `createProvider`
 */
export async function signWithSettings(settings: Settings, claims: Claims, options: SignOptions): Promise<string> {
  const { entries } = await readKeyset(settings.keys ?? keysFolder(settings.data));
  const provider = await createProvider({ issuer: issuerOf(settings, settings.port), keyset: entries });
  return provider.sign(claims, options);
}
