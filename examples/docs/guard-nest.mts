import { Controller, Get, Req, UseGuards } from "@nestjs/common";
import { createBearerGuard } from "jwksd/bearer";

const bearer = createBearerGuard({ issuer: "https://login.example.com", audience: "https://api.example.com" });

@Controller("orders")
@UseGuards(bearer.nest({ scope: "orders:read" }))
export class Orders {
  @Get()
  list(@Req() request: object) {
    return { of: bearer.authOf(request)?.claims.sub };
  }
}
