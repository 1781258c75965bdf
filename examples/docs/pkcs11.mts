import { createKeyManager } from "jwksd/rotation";
import { signerBackend } from "jwksd/signer";
import { sqliteStore } from "jwksd/store/sqlite";

const modulePath = "/usr/lib/softhsm/libsofthsm2.so";
const pkcs11 = { modulePath, pin: { file: "/run/secrets/pin" }, token: "pkcs11:token=jwksd" };
const backend = await signerBackend("pkcs11", { pkcs11 });
const { JWKSD_WRAPPING_KEYS = "" } = process.env;
export const manager = await createKeyManager({
  issuer: "https://login.example.com",
  store: sqliteStore("/var/lib/jwksd/keys.db"),
  wrappingKeys: JWKSD_WRAPPING_KEYS,
  createSigner: (request) => backend.create(request),
  openSigner: (uri, options) => backend.open(uri, options),
});
