import express from "express";
import { auth } from "express-oauth2-jwt-bearer";
import { createBearerGuard } from "jwksd/bearer";

const [issuer, audience] = ["https://login.example.com", "https://api.example.com"];
const bearer = createBearerGuard({ issuer, audience });

express()
  .get("/theirs", auth({ issuerBaseURL: issuer, audience }), (request, response) => response.json(request.auth))
  .get("/ours", bearer.express(), (request, response) => response.json(bearer.authOf(request)?.claims.sub));
