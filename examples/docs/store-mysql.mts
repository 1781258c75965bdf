import { mysqlStore } from "jwksd/store/mysql";

export const store = mysqlStore("mysql://jwksd@db.example/jwksd", { issuer: "https://login.example.com" });
