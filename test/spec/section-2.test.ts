import { ecKey, named, rfc7515Key, rsaKey } from "../support/keys.ts";
import { type Row, checkTable, expectedSet, ok } from "./table.ts";

const [a, b, c] = [named("a"), named("b"), named("c")];
const rsa = named("rsa", rsaKey());
const p384 = named("p384", ecKey("p384", "P-384"));
const p521 = named("p521", { ...ecKey("p521", "P-521"), alg: "ECDH-ES+A256KW" });

// Written out, and hashed by another tool, so that the other rows' way to compute what they expect is held against it.
const knownSet = {
  text:
    '{"keys":[{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",' +
    '"y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0","kid":"2026-11","alg":"ES256","use":"sig"}]}',
  etag: '"52906d1d7ed5557835a1842969792c5e382db0ca46689108f4f60561549c7a05"',
};

function set(section: string, name: string, setup: Row["setup"] & {}): Row {
  return {
    section,
    name,
    setup,
    input: { target: "/jwks" },
    expect: ok(expectedSet(setup.keys ?? [], setup.encryptionKeys)),
  };
}

checkTable([
  {
    section: "2, signing key entry",
    name: "a known key gives known bytes and a known ETag",
    setup: { keys: [named("2026-11", rfc7515Key)] },
    input: { target: "/jwks" },
    expect: ok(knownSet),
  },
  set("2, signing key entry", "coordinates keep their leading zeros: x", {
    keys: [named("x", ecKey("leading-zero-50"))],
  }),
  set("2, signing key entry", "coordinates keep their leading zeros: y", {
    keys: [named("y", ecKey("leading-zero-785"))],
  }),
  set("2, JWK set", "signing keys first, then encryption keys", { keys: [a], encryptionKeys: [rsa, p384] }),
  set("2, rule 2", "encryption keys come after all signing keys", { keys: [c, a, b], encryptionKeys: [p521, p384] }),
  set("2, rule 2", "a P-256 encryption key has use enc", { keys: [a], encryptionKeys: [b] }),
  set("2, rule 5", "the allow-list of client algorithms does not widen the signing keys", { keys: [a, b] }),
  set("2, configured keyset", "every entry is published, in the order of the keyset", { keys: [b, a, c] }),
  set("2, configured keyset, rule 3", "one entry for each active and retiring key", { keys: [c, b, a] }),
]);
