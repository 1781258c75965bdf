/**
 * The service of `jwksd serve`, to start in your own process.
 *
 * @module jwksd/server
 */

export { signWithSettings } from "./sign.ts";
export { createLog } from "./log.ts";
export type { Logger } from "./logger.ts";
export { type Service, startService } from "./service.ts";
export type { Settings } from "./setting-definitions.ts";
export { type SettingSources, resolveSettings } from "./settings.ts";
