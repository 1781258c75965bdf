/**
 * Algorithms that clients may use to sign client assertions (`private_key_jwt`) and request objects (JAR). The provider
 * itself signs only with ES256.
 *
 * @see RFC 7518 section 3.1; RFC 8037 section 3.1
 */
export const clientAlgorithms: readonly string[] = Object.freeze(["RS256", "PS256", "ES256", "EdDSA"]);
