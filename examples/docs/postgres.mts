import { postgresStores } from "jwksd/store/postgres";

export const database = await postgresStores("postgres://jwksd@db.example/jwksd");
export const store = database.store("https://login.example.com");
