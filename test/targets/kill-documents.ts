import { cacheControl } from "../../src/base/cache-control.ts";
import type { TargetSite, DocumentSet } from "../../src/service/targets/documents.ts";

export const site: TargetSite = { issuer: "https://a.example", cors: true, discovery: true };
/** Returns a discovery document that changes with every fifth set and always points to the same JWK Set. */
const discovery = (number: number): string =>
  JSON.stringify({ issuer: site.issuer, jwks_uri: `${site.issuer}/jwks`, changed: Math.floor(number / 5) });

/** Returns a set as long as a real one, so that a partial write would be detected. */
export const documentSetAt = (number: number): DocumentSet => {
  const isShort = number % 3 === 0;
  const set = JSON.stringify({
    number,
    isShort,
    keys: Array.from({ length: 40 }, (_, index) => `key ${number} ${index}`),
  });
  return {
    isShort,
    kids: [],
    documents: [
      {
        path: "jwks",
        body: Buffer.from(set),
        contentType: "application/jwk-set+json",
        cacheControl: cacheControl[isShort ? "rotation" : "long"],
      },
      {
        path: ".well-known/openid-configuration",
        body: Buffer.from(discovery(number)),
        contentType: "application/json",
        cacheControl: "public, max-age=3600",
      },
    ],
  };
};
