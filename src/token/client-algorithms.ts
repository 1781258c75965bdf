/**
 * Algorithms by which relying parties may sign what they send: client assertions and request objects. What the provider itself
 * signs is always ES256.
 *
 * @see the contract, section 2 rule 5
 */
export const clientAlgorithms: readonly string[] = Object.freeze(["RS256", "PS256", "ES256", "EdDSA"]);
