import { mysqlStore } from "jwksd/store/mysql";

export const store = await mysqlStore("mysql://jwksd@db.example/jwksd", { issuer: "https://login.example.com" });
