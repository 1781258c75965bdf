import { TokenError, invalidOption } from "../../../base/errors.ts";
import { importFailure } from "../../../base/optional-package.ts";
import type { Guard } from "../access-decision.ts";
import type { VerifiedAccessToken } from "../requirements.ts";
import type { BearerSettings } from "../settings.ts";

/** The `verifier` option for `requireBearerAuth` from `@modelcontextprotocol/sdk`. */
export interface McpTokenVerifier {
  /** Verifies a token. `resource` is the token's audience, which the SDK compares with `expectedResource`. */
  verifyAccessToken(this: void, token: string): Promise<VerifiedAccessToken & { resource?: URL }>;
}

/**
 * Adapts the guard to the MCP SDK's middleware. The SDK passes only the token and not the request, so tokens that are
 * bound to a key or a certificate are rejected.
 *
 * @throws ConfigError `ERR_OPTION_INVALID` if proofs are required
 */
export function mcpAdapter({ verify }: Guard, { dpop, resource, verification }: BearerSettings): McpTokenVerifier {
  if (dpop === "required") throw invalidOption('mcp() cannot check proofs, and "dpop" is "required"; use express()');
  const accepted = [verification.audience].flat();

  /** Returns the audience for which the guard accepted the token, if that is a URL. Prefers the `resource` option. */
  function resourceOf({ aud }: VerifiedAccessToken["claims"]): { resource?: URL } {
    const urls = accepted.filter((name) => [aud].flat().includes(name) && URL.canParse(name));
    const named = urls.find((name) => name === resource) ?? urls[0];
    return named === undefined ? {} : { resource: new URL(named) };
  }

  return {
    async verifyAccessToken(token) {
      try {
        const auth = await verify(token);
        if (auth.claims["cnf"] === undefined) return { ...auth, ...resourceOf(auth.claims) };
        throw new TokenError("ERR_TOKEN_CLAIM", "the token is bound to a key or a certificate");
      } catch (error) {
        if (!(error instanceof TokenError) || error.retryable) throw error;
        throw await invalidTokenError(error.message.replaceAll('"', "'"));
      }
    },
  };
}

/**
 * Creates the SDK's error for an invalid token, because the SDK responds with 401 only to its own errors.
 *
 * @throws ConfigError `ERR_PACKAGE_MISSING`
 */
async function invalidTokenError(message: string): Promise<Error> {
  let sdk;
  try {
    sdk = await import("@modelcontextprotocol/sdk/server/auth/errors.js");
  } catch (error) {
    throw importFailure("@modelcontextprotocol/sdk", error);
  }
  return new sdk.InvalidTokenError(message);
}
