import { jwtVerify } from "jose";
import { createRemoteKeySet } from "jwksd/relying-party";

const issuer = "https://login.example.com";
const keys = createRemoteKeySet({ issuer });

export async function claimsOf(token: string) {
  const { payload } = await jwtVerify(token, keys, { issuer, audience: "my-api", typ: "at+jwt" });
  return payload;
}
