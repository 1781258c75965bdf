import { H3 } from "h3";
import { createBearerGuard } from "jwksd/bearer";

const bearer = createBearerGuard({ issuer: "https://login.example.com", audience: "https://api.example.com" });

const app = new H3();
app.get("/orders", async (event) => {
  const auth = await bearer.check(event.req, { scope: "orders:read" });
  return auth instanceof Response ? auth : { of: auth.claims.sub };
});
export default app;
