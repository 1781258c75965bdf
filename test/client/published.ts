// Metadata documents of published clients, from public reports and source code as of September 2026. Some members may be missing.

/** @see https://github.com/cloudflare/workers-oauth-provider/issues/293; one URL per connector, its id replaced */
export const chatGpt = {
  client_id: "https://chatgpt.com/oauth/connector-1/client.json",
  client_uri: "https://chatgpt.com/",
  redirect_uris: ["https://chatgpt.com/connector/oauth/connector-1"],
  token_endpoint_auth_method: "private_key_jwt",
  token_endpoint_auth_methods_supported: ["none", "private_key_jwt"],
  grant_types: ["authorization_code", "refresh_token"],
  response_types: ["code"],
  client_name: "ChatGPT",
  logo_uri: "https://persistent.oaistatic.com/sonic/misc/openai-logo.png",
  token_endpoint_auth_signing_alg: "RS256",
  jwks_uri: "https://chatgpt.com/oauth/jwks.json",
};

export const claude = {
  client_id: "https://claude.ai/oauth/mcp-oauth-client-metadata",
  client_name: "Claude",
  client_uri: "https://claude.ai",
  redirect_uris: ["https://claude.ai/api/mcp/auth_callback"],
  grant_types: ["authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:jwt-bearer"],
  response_types: ["code"],
  token_endpoint_auth_method: "none",
};

/** @see https://github.com/anthropics/claude-code/issues/37767 */
export const claudeCode = {
  client_id: "https://claude.ai/oauth/claude-code-client-metadata",
  client_name: "Claude Code",
  client_uri: "https://claude.ai",
  redirect_uris: ["http://localhost/callback", "http://127.0.0.1/callback"],
  grant_types: ["authorization_code", "refresh_token"],
  response_types: ["code"],
  token_endpoint_auth_method: "none",
};

export const vsCode = {
  client_name: "Visual Studio Code",
  logo_uri: "https://code.visualstudio.com/assets/branding/code-stable.png",
  grant_types: ["authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code"],
  response_types: ["code"],
  token_endpoint_auth_method: "none",
  application_type: "native",
  client_id: "https://vscode.dev/oauth/client-metadata.json",
  client_uri: "https://vscode.dev/product",
  redirect_uris: ["http://127.0.0.1:33418/", "https://vscode.dev/redirect"],
};

/** The inspector of MCPJam; the MCP project's own inspector publishes no document. */
export const inspector = {
  client_id: "https://www.mcpjam.com/.well-known/oauth/client-metadata.json",
  client_name: "MCPJam Inspector",
  client_uri: "https://www.mcpjam.com",
  redirect_uris: [
    "mcpjam://oauth/callback",
    "http://localhost:6274/oauth/callback",
    "http://127.0.0.1:6274/oauth/callback",
  ],
  grant_types: ["authorization_code", "refresh_token"],
  response_types: ["code"],
  token_endpoint_auth_method: "none",
};

/** Each client with the redirect URI that it sends. */
export const published = [
  [chatGpt, "https://chatgpt.com/connector/oauth/connector-1"],
  [claude, "https://claude.ai/api/mcp/auth_callback"],
  [claudeCode, "http://localhost:58135/callback"],
  [vsCode, "http://127.0.0.1:33418/"],
  [inspector, "http://localhost:6274/oauth/callback"],
] as const;
