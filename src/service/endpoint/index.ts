/**
 * The service of `jwksd serve`, to start in your own process.
 *
 * @module jwksd/server
 */

export { signWithSettings } from "./sign.ts";
export { createLog } from "../config/log.ts";
export type { Logger } from "../config/logger.ts";
export { type Service, startService } from "./service.ts";
export type { Settings } from "../config/setting-definitions.ts";
export { type SettingSources, resolveSettings } from "../config/settings.ts";
