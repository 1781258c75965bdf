import { randomBytes } from "node:crypto";
import dns from "node:dns";
import tls from "node:tls";
import { certificateFor } from "../../client/certificate.ts";
import { type ServiceKey, serviceKey } from "./ecdsa.ts";
import { Refusal, type StubAnswer, type StubRequest, type StubServer, stubServer } from "./stub-server.ts";

/** A key version in the stub, which a test changes like an administrator. */
export interface AzureKey {
  readonly name: string;
  readonly version: string;
  readonly key: ServiceKey;
  kty: string;
  keyOps: string[];
  enabled: boolean;
  /** Time in seconds since the epoch. */
  nbf?: number;
  exp?: number;
  tags: Record<string, string>;
}

export interface AzureStub extends StubServer {
  /** `https://NAME.vault.azure.net:PORT` */
  readonly vault: string;
  readonly token: string;
  readonly keys: AzureKey[];
  /** Resource for which the service requires tokens. */
  resource: string;
  /** Creates a key with one version and returns its URI. */
  add(key?: Partial<AzureKey>): string;
}

const host = "jwksd-test.vault.azure.net";

// One certificate for all stubs in a process: with several for one name, TLS would try the wrong one.
const certificate = certificateFor(host);
let isTheVault = false;

/** Makes the vault's host name resolve to loopback, and the stubs' certificate trusted, in this process. */
function becomeTheVault(): void {
  if (isTheVault) return;
  isTheVault = true;
  const { lookup } = dns;
  dns.lookup = ((hostname: string, ...rest: unknown[]) =>
    Reflect.apply(lookup, dns, [hostname === host ? "127.0.0.1" : hostname, ...rest])) as typeof dns.lookup;
  tls.setDefaultCACertificates([...tls.getCACertificates("default"), certificate.cert]);
}

export const azureError = (status: number, code: string, inner?: string): StubAnswer => ({
  status,
  json: {
    error: {
      code,
      message: "a message that must not be shown",
      ...(inner !== undefined && { innererror: { code: inner } }),
    },
  },
});

/**
 * Starts a stub of the signing part of Azure Key Vault, with its checks.
 *
 * @param front URL of the vault, if another server in front of the stub terminates TLS
 * @see https://learn.microsoft.com/rest/api/keyvault/keys
 */
export async function azureStub(token: string, front?: string): Promise<AzureStub> {
  const keys: AzureKey[] = [];
  if (front === undefined) becomeTheVault();
  const server = await stubServer(operationOf, answer, front === undefined ? certificate : undefined);
  const vault = front ?? `https://${host}:${server.port}`;
  const add = (key: Partial<AzureKey> = {}): string => {
    const version = randomBytes(16).toString("hex");
    const usual = { name: "login", version, kty: "EC-HSM", keyOps: ["sign", "verify"], enabled: true, tags: {} };
    const added = { key: serviceKey(), ...usual, ...key };
    keys.push(added);
    return `azure-kv:${vault}/keys/${added.name}/${added.version}`;
  };
  const stub: AzureStub = Object.assign(server, { vault, token, keys, resource: "https://vault.azure.net", add });
  return stub;

  function answer(operation: string, { url, headers, body }: StubRequest): StubAnswer {
    if (headers.authorization === undefined) return challenge();
    if (headers.authorization !== `Bearer ${token}`) throw new Refusal("another token", challenge());
    const { pathname, searchParams } = new URL(url, vault);
    if (!/^(7\.\d|\d{4}-\d\d-\d\d)$/.test(searchParams.get("api-version") ?? ""))
      throw new Refusal("no version", azureError(400, "BadParameter"));
    const [, , name = "", version] = pathname.split("/");
    const input = body.length === 0 ? {} : (JSON.parse(body.toString()) as Record<string, unknown>);
    if (operation === "create") return create(name, input);
    const versions = keys.filter((key) => key.name === name);
    if (versions.length === 0) return azureError(404, "KeyNotFound");
    if (operation === "versions") {
      return {
        status: 200,
        json: {
          value: versions.map((key) => bundle(key)).map(({ key: { kid }, attributes }) => ({ kid, attributes })),
        },
      };
    }
    if (operation === "delete") {
      for (const key of versions) keys.splice(keys.indexOf(key), 1);
      const now = Math.floor(Date.now() / 1000);
      const [first] = versions;
      const deleted = {
        recoveryId: `${vault}/deletedkeys/${name}`,
        deletedDate: now,
        scheduledPurgeDate: now + 90 * 86_400,
      };
      return { status: 200, json: { ...(first && bundle(first)), ...deleted } };
    }
    const key = versions.find((key) => key.version === version);
    if (key === undefined) return azureError(404, "KeyNotFound");
    if (operation === "update") {
      key.tags = input["tags"] as Record<string, string>;
      return { status: 200, json: bundle(key) };
    }
    return operation === "sign" ? sign(key, input) : { status: 200, json: bundle(key) };
  }

  function challenge(): StubAnswer {
    const authorization = `authorization="https://login.microsoftonline.com/${"1".repeat(8)}", resource="${stub.resource}"`;
    return { ...azureError(401, "Unauthorized"), headers: { "WWW-Authenticate": `Bearer ${authorization}` } };
  }

  function create(
    name: string,
    { kty, crv, key_ops, tags, attributes: _attributes, ...rest }: Record<string, unknown>,
  ): StubAnswer {
    const isGood =
      (kty === "EC-HSM" || kty === "EC") &&
      crv === "P-256" &&
      JSON.stringify(key_ops) === '["sign","verify"]' &&
      /^[A-Za-z0-9-]{1,127}$/.test(name) &&
      Object.values(tags as object).every((value: string) => value.length <= 256) &&
      Object.keys(rest).length === 0;
    if (!isGood) throw new Refusal(`another kind of key: ${Object.keys(rest).join()}`, azureError(400, "BadParameter"));
    add({ name, kty, tags: tags as Record<string, string> });
    const made = keys.at(-1);
    return { status: 200, json: made && bundle(made) };
  }

  function bundle({ name, version, key, kty, keyOps, enabled, nbf, exp, tags }: AzureKey) {
    const { crv, x, y } = key.publicJwk;
    const curve = crv === "secp256k1" ? "P-256K" : crv;
    return {
      key: { kid: `${vault}/keys/${name}/${version}`, kty, key_ops: keyOps, crv: curve, x, y },
      attributes: { enabled, nbf, exp, created: 1, updated: 1, recoveryLevel: "Recoverable", recoverableDays: 90 },
      tags,
    };
  }

  function sign(key: AzureKey, { alg, value, ...rest }: Record<string, unknown>): StubAnswer {
    const digest = Buffer.from(String(value), "base64url");
    const isGood =
      alg === "ES256" &&
      digest.length === 32 &&
      digest.toString("base64url") === value &&
      Object.keys(rest).length === 0;
    if (!isGood) throw new Refusal("no SHA-256 digest for ES256", azureError(400, "BadParameter"));
    if (!key.enabled) return azureError(403, "Forbidden", "KeyDisabled");
    if ((key.exp ?? Number.POSITIVE_INFINITY) < Date.now() / 1000) return azureError(403, "Forbidden", "KeyExpired");
    return { status: 200, json: { kid: bundle(key).key.kid, value: key.key.sign(digest).toString("base64url") } };
  }
}

function operationOf({ method, url }: StubRequest): string {
  const [path = ""] = url.split("?");
  if (path.endsWith("/sign") && method === "POST") return "sign";
  if (path.endsWith("/create") && method === "POST") return "create";
  if (path.endsWith("/versions") && method === "GET") return "versions";
  return { GET: "read", PATCH: "update", DELETE: "delete" }[method] ?? `${method} ${path}`;
}
