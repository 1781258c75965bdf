/**
 * Keys for better-auth from a jwksd provider.
 *
 * @module jwksd/better-auth
 */

export { checkLifetimes } from "./lifetimes.ts";
export { type JwtSettings, jwtOptions } from "./jwt-options.ts";
