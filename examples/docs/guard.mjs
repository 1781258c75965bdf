// guard.mjs: npm install express, then node guard.mjs
import express from "express";
import { createBearer } from "jwksd/bearer";

const bearer = createBearer({ issuer: "http://localhost:3000", audience: "https://api.example.com" });

const app = express();
app.get("/orders", bearer.express({ scope: "orders:read" }), (req, res) => res.json(bearer.authOf(req)?.claims.sub));
app.listen(3001);
