import { encode } from "jose/base64url";
import { algorithmFor, algorithmOf } from "./algorithms.ts";
import type { Primitives } from "./primitives.ts";

// Primitives for browsers and workers.
const { subtle } = globalThis.crypto;

export const sha256: Primitives["sha256"] = async (bytes) => new Uint8Array(await subtle.digest("SHA-256", bytes));

export const sign: Primitives["sign"] = async (key, bytes) =>
  new Uint8Array(await subtle.sign(algorithmFor("ES256", key, "sign"), key, bytes));

export const verify: Primitives["verify"] = async (key, alg, bytes, signature) =>
  // Some runtimes throw if the bytes do not have the form of a signature.
  subtle.verify(algorithmFor(alg, key, "verify"), key, signature, bytes).catch(() => false);

// Web Crypto does not block the event loop.
export const verifyLater: Primitives["verifyLater"] = (...input) => verify(...input);

export const importPublicKey: Primitives["importPublicKey"] = (publicJwk, alg) =>
  subtle.importKey("jwk", publicJwk, algorithmOf(alg), true, ["verify"]);

export const toBase64url: Primitives["toBase64url"] = (input) => encode(input);

export const readPrivatePem: Primitives["readPrivatePem"] = undefined;
