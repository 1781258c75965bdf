import type { Code } from "./codes.ts";

/** A verifier that fails. */
export interface Break {
  readonly client: string;
  /** The version that was tried, or the versions that an issue names. */
  readonly version: string;
  /** `every token`: also those of sound keys. `its tokens`: those of the key, or keys, that the finding is about. */
  readonly fails: "every token" | "its tokens";
  /** The public issue that shows it; absent if a test of jwksd does. */
  readonly issue?: string;
}

/** Verifiers that fail, by code. */
export const breaks: Readonly<Partial<Record<Code, readonly Break[]>>> = {};
