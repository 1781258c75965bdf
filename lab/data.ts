import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Measured } from "./run.ts";

/** Content of `lab/data.json`. */
export interface Data {
  /** Date of the measurement. */
  readonly date: string;
  readonly verifiers: Readonly<Record<string, Measured>>;
}

export const dataFile = fileURLToPath(new URL("data.json", import.meta.url));

export const readData = (): Data => JSON.parse(readFileSync(dataFile, "utf8")) as Data;
