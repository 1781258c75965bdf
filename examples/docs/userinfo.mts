// userinfo.mts: npm install express, then node userinfo.mts
import express from "express";
import { createProvider } from "jwksd";
import { createBearerGuard } from "jwksd/bearer";
import { createKeyManager } from "jwksd/rotation";
import { sqliteStore } from "jwksd/store/sqlite";

const issuer = "http://localhost:3000"; // for real use: your own https URL
const { JWKSD_WRAPPING_KEYS = "" } = process.env;
const manager = await createKeyManager({
  issuer,
  store: sqliteStore("./keys.db"),
  wrappingKeys: JWKSD_WRAPPING_KEYS,
});
const provider = await createProvider({ keys: manager });
const bearer = createBearerGuard({ issuer: { issuer, keys: provider.keys }, audience: issuer });

const app = express();
app.use(provider.node);
// With GET and POST: OpenID Connect Core 1.0, section 5.3.1
app.all("/userinfo", bearer.express({ scope: "openid" }), (req, res) => {
  res.json({ sub: bearer.authOf(req)?.claims.sub });
});
app.listen(3000);
