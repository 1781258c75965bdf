/**
 * A client for the sign socket of `jwksd serve --sign-socket`.
 *
 * @module jwksd/sign-client
 */

export { type SignClient, type SignClientOptions, createSignClient } from "./sign-client.ts";
