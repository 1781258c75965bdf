import { calculateJwkThumbprint } from "jose/jwk/thumbprint";
import { exportJWK, exportPKCS8 } from "jose/key/export";
import { generateKeyPair } from "jose/key/generate/keypair";

/** Generates a P-256 signing key. Returns the text of a file that contains it, as a private JWK or PKCS#8 PEM. */
export async function generateKey(format: "jwk" | "pem"): Promise<{ readonly kid: string; readonly text: string }> {
  const { privateKey, publicKey } = await generateKeyPair("ES256", { extractable: true });
  const kid = await calculateJwkThumbprint(await exportJWK(publicKey));
  const jwk = { ...(await exportJWK(privateKey)), kid, alg: "ES256", use: "sig" };
  return { kid, text: format === "pem" ? await exportPKCS8(privateKey) : `${JSON.stringify(jwk, undefined, 2)}\n` };
}
