import { Controller, Get, Req, UseGuards } from "@nestjs/common";
import { createBearer } from "jwksd/bearer";

const bearer = createBearer({ issuer: "https://login.example.com", audience: "https://api.example.com" });

@Controller("orders")
@UseGuards(bearer.nest({ scope: "orders:read" }))
export class Orders {
  @Get()
  list(@Req() request: object) {
    return { of: bearer.authOf(request)?.claims.sub };
  }
}
