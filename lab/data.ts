import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Measured } from "./run.ts";

/** What `lab/data.json` has. */
export interface Data {
  /** The day of the run. */
  readonly date: string;
  readonly verifiers: Readonly<Record<string, Measured>>;
}

export const dataFile = fileURLToPath(new URL("data.json", import.meta.url));

export const readData = (): Data => JSON.parse(readFileSync(dataFile, "utf8")) as Data;
