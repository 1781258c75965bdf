// A program that exports what jwksd returns: with `declaration`, its own declarations must be able to name all of it.
import { createClientVerifier, createProvider, localSigner, memoryReplayStore, verify } from "jwksd";
import { createBearerGuard } from "jwksd/bearer";
import { jwtOptions } from "jwksd/better-auth";
import { examine } from "jwksd/doctor";
import { observeIssuer, watchJwkSet } from "jwksd/doctor/node";
import { createIssuers } from "jwksd/issuers";
import { createGuardedFetch, readEncryptionKeyset, readKeyset, textFile } from "jwksd/node";
import { createRotatingOidcProvider } from "jwksd/oidc-provider";
import { createRemoteKeySet } from "jwksd/relying-party";
import { createKeyManager, startWithSavedSet } from "jwksd/rotation";
import { createSignClient } from "jwksd/sign-client";
import { openSigner, signerBackend } from "jwksd/signer";
import { memoryStore } from "jwksd/store";
import { sqliteStore } from "jwksd/store/sqlite";
import { createSenderConstrainedClient, createTestIssuer } from "jwksd/testing";

const issuer = "https://op.example";
export const store = sqliteStore("keys.db");
export const manager = await createKeyManager({ issuer, store, wrappingKeys: "" });
export const rotated = await manager.rotate();
export const { health, records, policy } = manager;
export const saved = await startWithSavedSet({
  issuer,
  wrappingKeys: "",
  savedSet: textFile("saved-set"),
  start: async (options) => createKeyManager({ issuer, store, wrappingKeys: "", ...options }),
});
export const provider = await createProvider({ issuer, keys: manager });
export const { fetch, keys: ownKeys, node, sign, update } = provider;
export const active = await provider.signingKey();
export const set = await provider.jwkSet();
export const signer = await localSigner("");
export const clients = createClientVerifier({ issuer, replay: memoryReplayStore() });
export const issuers = await createIssuers({
  issuer: `${issuer}/{tenant}`,
  store: () => memoryStore(),
  wrappingKeys: "",
});
export const tenant = await issuers.get(issuer);
export const report = await issuers.runAllDueSteps();

export const remote = createRemoteKeySet({ issuer });
export const state = remote.state();
export const verified = await verify("", { keys: remote, issuer, audience: "api", algorithms: ["ES256"] });
export const bearer = createBearerGuard({ issuer, audience: "api" });
export const [express, fastify, hono] = [bearer.express(), bearer.fastify(), bearer.hono()];
export const [koa, nest, upgrade, mcp] = [bearer.koa(), bearer.nest(), bearer.upgrade(), bearer.mcp()];
export const { metadata } = bearer;
export const denied = bearer.challenge(new Request(issuer), { status: 403, description: "no" });

export const files = [await readKeyset("keys"), await readEncryptionKeyset("keys")];
export const guardedFetch = createGuardedFetch({});
export const openedSigner = await openSigner("");
export const backend = signerBackend("", {});
export const socket = createSignClient({ socket: "" });
export const testIssuer = await createTestIssuer();
export const server = await testIssuer.listen();
export const testClient = await createSenderConstrainedClient();
export const jwt = jwtOptions(provider);
export const observations = await observeIssuer(issuer);
export const findings = await examine(observations);
export const watched = await watchJwkSet(observations, { durationMs: 1 });
export const oidc = await createRotatingOidcProvider(manager, {}, () => ({
  issuer,
  use: () => {},
  callback: () => () => {},
}));
