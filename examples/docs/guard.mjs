// guard.mjs: npm install express, then node guard.mjs
import express from "express";
import { createBearerGuard } from "jwksd/bearer";

const bearer = createBearerGuard({ issuer: "http://127.0.0.1:9400", audience: "https://api.example.com" });

const app = express();
app.get("/orders", bearer.express({ scope: "orders:read" }), (req, res) => res.json(bearer.authOf(req)?.claims.sub));
app.listen(3001);
