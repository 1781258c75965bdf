import { libsqlStore } from "jwksd/store/libsql";

export const store = await libsqlStore("libsql://db.example", { issuer: "https://login.example.com" });
