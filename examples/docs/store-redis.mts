import { redisStore } from "jwksd/store/redis";

export const store = await redisStore("redis://jwksd@db.example/0", { issuer: "https://login.example.com" });
