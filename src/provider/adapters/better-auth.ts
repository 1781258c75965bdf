/**
 * Keys for better-auth from a jwksd provider.
 *
 * @module jwksd/better-auth
 */

export { checkTokenLifetimes } from "./better-auth-lifetimes.ts";
export { type JwtPluginOptions, jwtOptions } from "./jwt-options.ts";
