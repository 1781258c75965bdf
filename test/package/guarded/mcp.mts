import { requireBearerAuth } from "@modelcontextprotocol/sdk/server/auth/middleware/bearerAuth.js";
import express from "express";
import { createBearerGuard } from "jwksd/bearer";

const resource = "https://mcp.example.com";
const bearer = createBearerGuard({ issuer: "https://login.example.com", audience: resource, resource });

const theirs = requireBearerAuth({ verifier: bearer.mcp(), expectedResource: new URL(resource) });
express()
  .get("/theirs", theirs, (request, response) => response.json(request.auth?.clientId))
  .get("/ours", bearer.express({ scope: "tools" }), (request, response) =>
    response.json(bearer.authOf(request)?.clientId),
  );
