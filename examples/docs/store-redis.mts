import { redisStore } from "jwksd/store/redis";

export const store = redisStore("redis://jwksd@db.example/0", { issuer: "https://login.example.com" });
