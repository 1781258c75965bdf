/**
 * Keys for better-auth from a jwksd provider.
 *
 * @module jwksd/better-auth
 */

export { checkTokenLifetimes } from "./token-lifetimes.ts";
export { type JwtSettings, jwtOptions } from "./jwt-options.ts";
