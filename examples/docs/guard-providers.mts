import { createBearerGuard } from "jwksd/bearer";

// Microsoft Entra ID (Azure AD), version 2.0 tokens. The audience is the client ID of the API's own registration.
export const azure = createBearerGuard({
  issuer: "https://login.microsoftonline.com/11111111-2222-3333-4444-555555555555/v2.0",
  audience: "66666666-7777-8888-9999-000000000000",
  typ: "JWT",
  scopeClaims: ["scp", "roles"], // for users and for programs
});

// Auth0. The issuer ends in a slash. Permissions come with "Add Permissions in the Access Token".
export const auth0 = createBearerGuard({
  issuer: "https://example.eu.auth0.com/",
  audience: "https://api.example.com",
  typ: "JWT",
  scopeClaims: ["permissions", "scope"],
});

// Amazon Cognito. Its tokens name the client, not an API.
export const cognito = createBearerGuard({
  issuer: "https://cognito-idp.eu-central-1.amazonaws.com/eu-central-1_EXAMPLE",
  audience: { claim: "client_id", values: ["1example23456789"] },
  typ: "JWT",
});

// Behind an AWS Application Load Balancer that signs users in, here with Cognito
export const behindLoadBalancer = createBearerGuard({
  issuer: "https://cognito-idp.eu-central-1.amazonaws.com/eu-central-1_EXAMPLE",
  audience: { claim: "client_id", values: ["1example23456789"] },
  typ: "JWT",
  token: ({ headers }: Request) => headers.get("x-amzn-oidc-accesstoken") ?? undefined,
});
