import { KeyObject } from "node:crypto";
import express from "express";
import { decodeProtectedHeader } from "jose";
import { createRemoteKeySet } from "jwksd/relying-party";
import passport from "passport";
import { ExtractJwt, Strategy } from "passport-jwt";

const issuer = "https://login.example.com";
const keys = createRemoteKeySet({ issuer });

passport.use(
  new Strategy(
    {
      jwtFromRequest: ExtractJwt.fromAuthHeaderAsBearerToken(),
      secretOrKeyProvider: async (_request, token: string, done) => {
        try {
          // passport-jwt passes a key to jsonwebtoken, which accepts a PEM or a KeyObject.
          done(null, KeyObject.from(await keys(decodeProtectedHeader(token))) as never);
        } catch (error) {
          done(error);
        }
      },
      algorithms: ["ES256"],
      issuer,
      audience: "https://api.example.com",
    },
    (claims, done) => done(null, claims),
  ),
);

const app = express();
app.get("/orders", passport.authenticate("jwt", { session: false }), (_req, res) => res.json([]));
app.listen(3001);
