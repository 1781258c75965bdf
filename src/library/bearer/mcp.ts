import { TokenError } from "../../base/errors.ts";
import { loadPackage } from "../../base/optional-package.ts";
import type { Auth, Guard } from "./guard.ts";

/** What `requireBearerAuth` of `@modelcontextprotocol/sdk` takes as `verifier`. */
export interface TokenVerifier {
  verifyAccessToken(this: void, token: string): Promise<Auth>;
}

/**
 * The face for the middleware of the MCP SDK, which knows a token and nothing else of the request: a token that is bound to a key or a
 * certificate is refused.
 */
export const mcpFace = ({ authOf }: Guard): TokenVerifier => ({
  async verifyAccessToken(token) {
    try {
      const auth = await authOf(token);
      if (auth.claims["cnf"] === undefined) return auth;
      throw new TokenError("ERR_TOKEN_CLAIM", "the token is bound to a key or a certificate");
    } catch (error) {
      if (!(error instanceof TokenError) || error.retryable) throw error;
      // The SDK answers 401 to its own errors only.
      const name = "@modelcontextprotocol/sdk";
      const { InvalidTokenError } = await loadPackage(
        name,
        () => import("@modelcontextprotocol/sdk/server/auth/errors.js"),
      );
      throw new InvalidTokenError(error.message.replaceAll('"', "'"));
    }
  },
});
