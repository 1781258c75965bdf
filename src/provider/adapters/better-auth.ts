/**
 * Keys for better-auth from a jwksd provider.
 *
 * @module jwksd/better-auth
 */

export { type AuthConfig, checkLifetimes } from "./lifetimes.ts";
export { type JwtSettings, type SigningRequest, type StoredKey, jwtOptions } from "./jwt-options.ts";
