export { type SignClient, type SignClientOptions, createSignClient } from "./sign-client.ts";
