import { H3 } from "h3";
import { createBearer } from "jwksd/bearer";

const bearer = createBearer({ issuer: "https://login.example.com", audience: "https://api.example.com" });

const app = new H3();
app.get("/orders", async (event) => {
  const auth = await bearer.check(event.req, { scope: "orders:read" });
  return auth instanceof Response ? auth : { of: auth.claims.sub };
});
export default app;
