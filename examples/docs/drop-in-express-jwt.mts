import { KeyObject } from "node:crypto";
import express from "express";
import { expressjwt } from "express-jwt";
import { createRemoteKeySet } from "jwksd/relying-party";

const issuer = "https://login.example.com";
const keys = createRemoteKeySet({ issuer });

const app = express();
app.use(
  expressjwt({
    secret: async (_request, token) => KeyObject.from(await keys(token?.header ?? {})),
    algorithms: ["ES256"],
    issuer,
    audience: "https://api.example.com",
  }),
);
app.get("/orders", (_req, res) => res.json([]));
app.listen(3001);
