import { ClientDocumentError } from "../../base/errors.ts";
import { isGiven } from "../../base/json.ts";
import { shownUrl } from "../../base/urls.ts";
import { clientAlgorithms } from "./client-algorithms.ts";
import { type ClientMetadata, offeredMethods } from "./document-metadata.ts";

/** An authentication method that both a client and this package support. */
export type ClientMethod = "private_key_jwt" | "none";

/** Returns the strongest method that both sides support. @throws ClientDocumentError `ERR_CLIENT_METHOD` */
export function chooseMethod(metadata: ClientMetadata, publicClients: boolean): ClientMethod {
  const { token_endpoint_auth_signing_alg: alg } = metadata;
  const offered = offeredMethods(metadata);
  if (offered.includes("private_key_jwt") && (!isGiven(alg) || clientAlgorithms.includes(alg as string)))
    return "private_key_jwt";
  if (publicClients && offered.includes("none")) return "none";
  const accepted = `private_key_jwt with ${clientAlgorithms.join(", ")}${publicClients ? ", or none" : ""}`;
  const message = `${shownUrl(metadata.client_id)}: the client does not offer an authentication method that is accepted here (${accepted})`;
  throw new ClientDocumentError("ERR_CLIENT_METHOD", message);
}
