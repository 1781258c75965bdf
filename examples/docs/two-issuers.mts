import { createTestIssuer } from "jwksd/testing";

export const login = await createTestIssuer({ issuer: "https://login.example.com" });
export const partner = await createTestIssuer({ issuer: "https://partner.example.org" });
globalThis.fetch = (input, init) =>
  (new Request(input).url.startsWith(partner.issuer) ? partner : login).fetch(input, init);
