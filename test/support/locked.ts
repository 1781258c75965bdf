import { DatabaseSync } from "node:sqlite";

/** Keeps everybody else from writing to a SQLite store, until it is told to let go. */
export function lockStore(path: string): () => void {
  const db = new DatabaseSync(path, { timeout: 5_000 });
  db.exec("BEGIN IMMEDIATE");
  return () => {
    db.exec("ROLLBACK");
    db.close();
  };
}
