import { type CacheMode, type Representation, cacheControl, represent } from "../http/respond.ts";
import type { Document, Edition } from "../keyset/document.ts";

/** What is served until a moment (epoch milliseconds), in either cache mode, and what follows. */
export interface Page extends Readonly<Record<CacheMode, Representation>> {
  readonly until: number;
  readonly following: Page | undefined;
}

/** Chains the editions of a keyset into the pages that are served one after the other. */
export function pageFrom(editions: readonly Edition[], cors: boolean): Page {
  const inMode = (document: Document, mode: CacheMode): Representation =>
    represent(document, "application/jwk-set+json", cacheControl[mode], cors);
  return editions.reduceRight<Page | undefined>(
    (following, { document, until }) => ({
      long: inMode(document, "long"),
      rotation: inMode(document, "rotation"),
      until,
      following,
    }),
    undefined,
  ) as Page;
}
