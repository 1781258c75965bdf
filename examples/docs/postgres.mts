import { postgresStore } from "jwksd/store/postgres";

export const store = postgresStore("postgres://jwksd@db.example/jwksd", { issuer: "https://login.example.com" });
