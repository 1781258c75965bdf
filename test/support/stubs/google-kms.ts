import { createPrivateKey, createPublicKey, verify } from "node:crypto";
import { crc32c } from "../../../src/keys/kms/google-crc32c.ts";
import { rsaKey } from "../keys.ts";
import { type ServiceKey, derOf, serviceKey } from "./ecdsa.ts";
import { Refusal, type StubAnswer, type StubRequest, type StubServer, stubServer } from "./stub-server.ts";

/** A key version in the stub, which a test changes like an administrator. */
export interface GoogleKeyVersion {
  readonly name: string;
  readonly key: ServiceKey;
  state: keyof typeof states;
  algorithm: keyof typeof algorithms;
  protectionLevel: keyof typeof levels;
  /** Number of reads for which the version is still being generated. */
  looksUntilEnabled: number;
}

interface CryptoKey {
  readonly template: { algorithm: number; protectionLevel: number };
  readonly labels: Record<string, string>;
}

export interface GoogleStub extends StubServer {
  readonly versions: Map<string, GoogleKeyVersion>;
  readonly cryptoKeys: Map<string, CryptoKey>;
  /** Access tokens that were accepted. */
  readonly tokens: ReadonlySet<string>;
  /** Creates a key version and returns its URI. */
  add(version?: Partial<GoogleKeyVersion>): string;
}

// Numbers, because the SDK requests enums as numbers. @see google/cloud/kms/v1/resources.proto
const states = {
  ENABLED: 1,
  DISABLED: 2,
  DESTROYED: 3,
  DESTROY_SCHEDULED: 4,
  PENDING_GENERATION: 5,
  GENERATION_FAILED: 8,
};
const algorithms = { EC_SIGN_P256_SHA256: 12, EC_SIGN_P384_SHA384: 13, EC_SIGN_SECP256K1_SHA256: 31 };
const levels = { SOFTWARE: 1, HSM: 2 };
const asymmetricSign = 5;

const account = createPrivateKey({ key: rsaKey(), format: "jwk" });
const email = "jwksd@project.iam.gserviceaccount.com";

/** Content of a file for a service account with all permissions. */
export const serviceAccount = {
  type: "service_account",
  // Without it, the SDK searches for a project name: it runs gcloud and queries a metadata server.
  project_id: "project",
  private_key_id: "k1",
  private_key: account.export({ type: "pkcs8", format: "pem" }).toString(),
  client_email: email,
};

export const googleError = (code: number, status: string): StubAnswer => ({
  status: code,
  json: { error: { code, status, message: "a message that must not be shown", details: [] } },
});

/** The signing part of Google Cloud KMS, with its checks. @see https://cloud.google.com/kms/docs/reference/rest */
export async function googleStub(): Promise<GoogleStub> {
  const versions = new Map<string, GoogleKeyVersion>();
  const cryptoKeys = new Map<string, CryptoKey>();
  const tokens = new Set<string>();
  const server = await stubServer(operationOf, answer);

  function addTo(cryptoKey: string, version: Partial<GoogleKeyVersion> = {}): GoogleKeyVersion {
    const number = [...versions.keys()].filter((name) => name.startsWith(`${cryptoKey}/`)).length + 1;
    const name = `${cryptoKey}/cryptoKeyVersions/${number}`;
    const usual = {
      state: "ENABLED",
      algorithm: "EC_SIGN_P256_SHA256",
      protectionLevel: "HSM",
      looksUntilEnabled: 0,
    } as const;
    const added = { name, key: serviceKey(), ...usual, ...version };
    versions.set(name, added);
    return added;
  }

  return Object.assign(server, {
    versions,
    cryptoKeys,
    tokens,
    add: (version: Partial<GoogleKeyVersion> = {}) =>
      `gcp-kms:${addTo("projects/project/locations/europe-west3/keyRings/login/cryptoKeys/signing", version).name}`,
  });

  function answer(operation: string, request: StubRequest): StubAnswer {
    const problem = tokenProblem(request);
    if (problem !== undefined) throw new Refusal(problem, googleError(401, "UNAUTHENTICATED"));
    tokens.add(request.headers.authorization?.slice("Bearer ".length) ?? "");
    const { pathname, searchParams } = new URL(request.url, server.url);
    if (searchParams.get("$alt") !== "json;enum-encoding=int") {
      throw new Refusal("enums as names", googleError(400, "INVALID_ARGUMENT"));
    }
    const input = request.body.length === 0 ? {} : (JSON.parse(request.body.toString()) as Record<string, unknown>);
    if (operation === "createKey") return createKey(pathname, searchParams, input);
    if (operation === "createVersion") {
      const parent = pathname.slice("/v1/".length).replace(/\/cryptoKeyVersions$/, "");
      const template = cryptoKeys.get(parent)?.template;
      if (template === undefined) return googleError(404, "NOT_FOUND");
      const protectionLevel = template.protectionLevel === levels.HSM ? "HSM" : "SOFTWARE";
      const version = addTo(parent, { state: "PENDING_GENERATION", protectionLevel, looksUntilEnabled: 2 });
      return { status: 200, json: description(version) };
    }
    const name = pathname.slice("/v1/".length).replace(/\/publicKey$|:\w+$/, "");
    const version = versions.get(name);
    if (version === undefined) return googleError(404, "NOT_FOUND");
    if (operation === "getVersion") {
      version.looksUntilEnabled -= 1;
      if (version.state === "PENDING_GENERATION" && version.looksUntilEnabled <= 0) version.state = "ENABLED";
      return { status: 200, json: description(version) };
    }
    if (operation === "destroy") {
      if (version.state.startsWith("DESTROY")) return googleError(400, "FAILED_PRECONDITION");
      version.state = "DESTROY_SCHEDULED";
      const destroyTime = new Date(Date.now() + 30 * 86_400_000).toISOString();
      return { status: 200, json: { ...description(version), destroyTime } };
    }
    if (version.state !== "ENABLED") return googleError(400, "FAILED_PRECONDITION");
    return { status: 200, json: operation === "sign" ? sign(version, input) : publicKeyOf(version) };
  }

  function createKey(pathname: string, query: URLSearchParams, input: Record<string, unknown>): StubAnswer {
    const { purpose, versionTemplate, labels } = input as unknown as CryptoKey & {
      purpose: unknown;
      versionTemplate: CryptoKey["template"];
    };
    const isGood =
      [asymmetricSign, "ASYMMETRIC_SIGN"].includes(purpose as number) &&
      versionTemplate.algorithm === algorithms.EC_SIGN_P256_SHA256 &&
      query.get("skipInitialVersionCreation") === "true" &&
      Object.entries(labels).every((entry) => entry.every((text) => /^[a-z0-9_-]{0,63}$/.test(text)));
    if (!isGood)
      throw new Refusal(`another kind of key: ${JSON.stringify(input)}`, googleError(400, "INVALID_ARGUMENT"));
    const name = `${pathname.slice("/v1/".length)}/${query.get("cryptoKeyId")}`;
    if (cryptoKeys.has(name)) return googleError(409, "ALREADY_EXISTS");
    cryptoKeys.set(name, { template: versionTemplate, labels });
    return { status: 200, json: { name } };
  }
}

/** @see https://developers.google.com/identity/protocols/oauth2/service-account#jwt-auth */
function tokenProblem({ headers }: StubRequest): string | undefined {
  const [, signed = "", header = "", claims = "", signature = ""] =
    /^Bearer (([\w-]+)\.([\w-]+))\.([\w-]+)$/.exec(headers.authorization ?? "") ?? [];
  if (!verify("sha256", Buffer.from(signed), createPublicKey(account), Buffer.from(signature, "base64url")))
    return "a wrong token";
  const { alg } = JSON.parse(Buffer.from(header, "base64url").toString()) as { alg?: string };
  const { iss, sub, exp, scope } = JSON.parse(Buffer.from(claims, "base64url").toString()) as Record<string, unknown>;
  const isGood = alg === "RS256" && iss === email && sub === email && Number(exp) * 1000 > Date.now();
  return isGood && String(scope).includes("auth/cloudkms") ? undefined : "a token of another account or scope";
}

function operationOf({ method, url }: StubRequest): string {
  const [path = ""] = url.split("?");
  if (path.endsWith(":asymmetricSign")) return "sign";
  if (path.endsWith(":destroy")) return "destroy";
  if (path.endsWith("/publicKey")) return "getPublicKey";
  if (path.endsWith("/cryptoKeys")) return "createKey";
  if (path.endsWith("/cryptoKeyVersions")) return "createVersion";
  return /\/cryptoKeyVersions\/\d+$/.test(path) && method === "GET" ? "getVersion" : `${method} ${path}`;
}

const description = ({ name, state, algorithm, protectionLevel }: GoogleKeyVersion): Record<string, unknown> => ({
  name,
  state: states[state],
  algorithm: algorithms[algorithm],
  protectionLevel: levels[protectionLevel],
});

function publicKeyOf({ name, key, algorithm, protectionLevel }: GoogleKeyVersion): Record<string, unknown> {
  const pem = key.publicPem;
  const pemCrc32c = String(crc32c(Buffer.from(pem)));
  return { name, pem, pemCrc32c, algorithm: algorithms[algorithm], protectionLevel: levels[protectionLevel] };
}

function sign({ name, key }: GoogleKeyVersion, input: Record<string, unknown>): Record<string, unknown> {
  const { digest, digestCrc32c, ...rest } = input as { digest?: { sha256?: string }; digestCrc32c?: string };
  const bytes = Buffer.from(digest?.sha256 ?? "", "base64");
  const isGood =
    bytes.length === 32 &&
    bytes.toString("base64") === digest?.sha256 &&
    digestCrc32c === String(crc32c(bytes)) &&
    Object.keys(rest).length === 0;
  if (!isGood) throw new Refusal("no SHA-256 digest with its checksum", googleError(400, "INVALID_ARGUMENT"));
  const signature = derOf(key.sign(bytes));
  return {
    name,
    signature: signature.toString("base64"),
    signatureCrc32c: String(crc32c(signature)),
    verifiedDigestCrc32c: true,
    protectionLevel: levels.HSM,
  };
}
