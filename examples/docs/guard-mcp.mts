import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import express from "express";
import { createBearerGuard } from "jwksd/bearer";

const resource = "https://mcp.example.com/mcp";
const bearer = createBearerGuard({ issuer: "https://login.example.com", audience: resource, resource });

const app = express();
app.use(bearer.metadata.node); // lets clients discover the provider
app.post("/mcp", bearer.express({ scope: "tools" }), express.json(), async (req, res) => {
  const server = new McpServer({ name: "example", version: "1.0.0" });
  server.registerTool("client", { description: "Says which client calls" }, ({ authInfo }) => ({
    content: [{ type: "text", text: `You are ${authInfo?.clientId}.` }],
  }));
  const transport = new StreamableHTTPServerTransport({});
  res.on("close", () => void server.close());
  await server.connect(transport);
  await transport.handleRequest(req, res, req.body);
});
app.listen(3001);
