import type { TokenSigner } from "../../sign/token/token-signer.ts";
import type { ServiceKeys } from "../keys/service-keys.ts";

/** The signer for sign sockets: a provider and the keys that it follows. */
export interface Signing
  extends
    Pick<TokenSigner, "sign" | "signPayload" | "checkMaySign">,
    Pick<ServiceKeys, "signingRecords" | "takenAt" | "maxTokenLifetimeSeconds"> {}
