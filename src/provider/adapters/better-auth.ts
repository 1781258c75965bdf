/**
 * The keys of better-auth, from a provider of jwksd.
 *
 * @module jwksd/better-auth
 */

export { type AuthConfig, checkLifetimes } from "./lifetimes.ts";
export { type JwtSettings, type SigningRequest, type StoredKey, jwtOptions } from "./jwt-options.ts";
