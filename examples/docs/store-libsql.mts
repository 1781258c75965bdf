import { libsqlStore } from "jwksd/store/libsql";

export const store = libsqlStore("libsql://db.example", { issuer: "https://login.example.com" });
