import { createClientVerifier } from "jwksd";
import { guardedFetch } from "jwksd/node"; // https only, public addresses only, no redirects

const clients = createClientVerifier({
  issuer: "https://login.example.com",
  fetch: guardedFetch,
  onEvent: (event) => console.log(JSON.stringify(event)),
});
const client = { clientId: "web", jwksUri: "https://client.example/jwks" }; // or jwks: the set itself

export const authenticate = (assertion: string) => clients.clientAssertion(assertion, client);
export const readRequest = (requestObject: string) => clients.requestObject(requestObject, client);
