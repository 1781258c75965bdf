import { TokenError, invalidOption } from "../../../base/errors.ts";
import { importFailure } from "../../../base/optional-package.ts";
import type { Guard } from "../guard.ts";
import type { Auth } from "../requirements.ts";
import type { BearerSettings } from "../settings.ts";

/** What `requireBearerAuth` of `@modelcontextprotocol/sdk` takes as `verifier`. */
export interface TokenVerifier {
  /** `resource` is the audience of the token, which the SDK compares with its `expectedResource`. */
  verifyAccessToken(this: void, token: string): Promise<Auth & { resource?: URL }>;
}

/**
 * The adapter for the middleware of the MCP SDK, which knows a token and nothing else of the request: a token that is bound to a key or a
 * certificate is refused.
 *
 * @throws ConfigError `ERR_OPTION_INVALID` when proofs are required
 */
export function mcpAdapter({ verify }: Guard, { dpop, resource, verification }: BearerSettings): TokenVerifier {
  if (dpop === "required") throw invalidOption('mcp() sees no proofs, and "dpop" is "required"; use express()');
  const accepted = [verification.audience].flat();

  /** The audience by which the guard took the token, where it is a URL: the one of the option `resource` before others. */
  function resourceOf({ aud }: Auth["claims"]): { resource?: URL } {
    const taken = accepted.filter((name) => [aud].flat().includes(name) && URL.canParse(name));
    const named = taken.find((name) => name === resource) ?? taken[0];
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

/** The SDK answers 401 to its own errors only. @throws ConfigError `ERR_PACKAGE_MISSING` */
async function invalidTokenError(message: string): Promise<Error> {
  let sdk;
  try {
    sdk = await import("@modelcontextprotocol/sdk/server/auth/errors.js");
  } catch (error) {
    throw importFailure("@modelcontextprotocol/sdk", error);
  }
  return new sdk.InvalidTokenError(message);
}
