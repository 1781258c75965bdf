// oidc-adapter.mts: oidc-provider sessions, grants and codes in one SQLite file, for any number of processes on one machine
import { DatabaseSync } from "node:sqlite";

type Payload = Record<string, unknown>;

const now = () => Math.floor(Date.now() / 1000);

export function sqliteAdapter(path: string) {
  const db = new DatabaseSync(path, { timeout: 5_000 });
  db.exec(`
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = NORMAL;
    CREATE TABLE IF NOT EXISTS items (model, id, payload, expires_at, PRIMARY KEY (model, id));
    CREATE INDEX IF NOT EXISTS items_by_grant ON items (payload ->> 'grantId');
    CREATE INDEX IF NOT EXISTS items_by_uid ON items (payload ->> 'uid');
    CREATE INDEX IF NOT EXISTS items_by_user_code ON items (payload ->> 'userCode');
    CREATE INDEX IF NOT EXISTS items_by_end ON items (expires_at);
  `);
  const put = db.prepare("INSERT OR REPLACE INTO items VALUES (?, ?, ?, ?)");
  const forget = db.prepare("DELETE FROM items WHERE expires_at < ?");
  const find = (condition: string) => {
    const select = db.prepare(`SELECT payload FROM items WHERE model = ? AND ${condition} = ? AND expires_at > ?`);
    return (model: string, value: string): Payload | undefined => {
      const row = select.get(model, value, now()) as { payload: string } | undefined;
      return row && (JSON.parse(row.payload) as Payload);
    };
  };
  const [byId, byUid, byUserCode] = [find("id"), find("payload ->> 'uid'"), find("payload ->> 'userCode'")];
  const consume = db.prepare(
    "UPDATE items SET payload = json_set(payload, '$.consumed', ?) WHERE model = ? AND id = ?",
  );
  const destroy = db.prepare("DELETE FROM items WHERE model = ? AND id = ?");
  const revoke = db.prepare("DELETE FROM items WHERE payload ->> 'grantId' = ?");
  setInterval(() => forget.run(now()), 60_000).unref();

  return (model: string) => ({
    upsert: async (id: string, payload: Payload, expiresIn: number) =>
      void put.run(model, id, JSON.stringify(payload), now() + expiresIn),
    find: async (id: string) => byId(model, id),
    findByUid: async (uid: string) => byUid(model, uid),
    findByUserCode: async (userCode: string) => byUserCode(model, userCode),
    consume: async (id: string) => void consume.run(now(), model, id),
    destroy: async (id: string) => void destroy.run(model, id),
    revokeByGrantId: async (grantId: string) => void revoke.run(grantId),
  });
}
