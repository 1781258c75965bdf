import { DatabaseSync } from "node:sqlite";
import { type SetIfAbsent, createClientVerifier } from "jwksd";

const db = new DatabaseSync("replay.db", { timeout: 5_000 }); // waits for another process
db.exec("create table if not exists replay (key text primary key, expires_at integer not null)");
const insert = db.prepare(`
  insert into replay (key, expires_at) values (?1, ?2)
  on conflict (key) do update set expires_at = excluded.expires_at where replay.expires_at <= ?3`);
const forget = db.prepare("delete from replay where expires_at <= ?");

export const replay: SetIfAbsent = (key, expiresAt) => insert.run(key, expiresAt, Date.now()).changes === 1;
export const clients = createClientVerifier({ issuer: "https://login.example.com", replay });
setInterval(() => forget.run(Date.now()), 60_000).unref();
