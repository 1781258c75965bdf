import { createProvider } from "jwksd";
import { openSigner } from "jwksd/signer";

const arn = "arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab";
const signer = await openSigner(`aws-kms:${arn}`);
export const provider = await createProvider({
  issuer: "https://login.example.com",
  keyset: [{ kid: "2026-11", signer }],
});
