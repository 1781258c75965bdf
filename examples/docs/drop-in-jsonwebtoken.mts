import { KeyObject } from "node:crypto";
import jsonwebtoken from "jsonwebtoken";
import { createRemoteKeySet } from "jwksd/relying-party";

const issuer = "https://login.example.com";
const keys = createRemoteKeySet({ issuer });

export function claimsOf(token: string, done: jsonwebtoken.VerifyCallback): void {
  jsonwebtoken.verify(
    token,
    (header, found) => void keys(header).then((key) => found(null, KeyObject.from(key)), found),
    { algorithms: ["ES256"], issuer, audience: "https://api.example.com" },
    done,
  );
}
