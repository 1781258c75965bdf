import type * as SdkErrors from "@modelcontextprotocol/sdk/server/auth/errors.js";
import { TokenError, invalidOption } from "../../base/errors.ts";
import { loadPackage } from "../../base/optional-package.ts";
import type { Auth, Guard } from "./guard.ts";
import type { BearerSettings } from "./settings.ts";

/** What `requireBearerAuth` of `@modelcontextprotocol/sdk` takes as `verifier`. */
export interface TokenVerifier {
  verifyAccessToken(this: void, token: string): Promise<Auth>;
}

// No literal in the import, because bundlers would look for a package that most do not have.
const sdk = "@modelcontextprotocol/sdk";
const errorsModule: string = `${sdk}/server/auth/errors.js`;

/**
 * The face for the middleware of the MCP SDK, which knows a token and nothing else of the request: a token that is bound to a key or a
 * certificate is refused.
 *
 * @throws ConfigError `ERR_OPTION_INVALID` when proofs are required
 */
export function mcpFace({ authOf }: Guard, { dpop }: BearerSettings): TokenVerifier {
  if (dpop === "required") throw invalidOption('mcp() sees no proofs, and "dpop" is "required"; use express()');
  return {
    async verifyAccessToken(token) {
      try {
        const auth = await authOf(token);
        if (auth.claims["cnf"] === undefined) return auth;
        throw new TokenError("ERR_TOKEN_CLAIM", "the token is bound to a key or a certificate");
      } catch (error) {
        if (!(error instanceof TokenError) || error.retryable) throw error;
        // The SDK answers 401 to its own errors only.
        const { InvalidTokenError } = await loadPackage(sdk, () => import(errorsModule) as Promise<typeof SdkErrors>);
        throw new InvalidTokenError(error.message.replaceAll('"', "'"));
      }
    },
  };
}
