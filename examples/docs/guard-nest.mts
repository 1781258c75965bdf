import type { INestApplication } from "@nestjs/common";
import { createBearer } from "jwksd/bearer";

const bearer = createBearer({ issuer: "https://login.example.com", audience: "https://api.example.com" });

/** To be called in main.ts, after NestFactory.create(). */
export function guard(app: INestApplication): void {
  app.use("/orders", bearer.express({ scope: "orders:read" }));
}
