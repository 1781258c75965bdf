import { type ServiceKey, serviceKey } from "./ecdsa.ts";
import { Refusal, type StubAnswer, type StubRequest, type StubServer, stubServer } from "./stub-server.ts";

/** A key in the stub, which a test changes like an administrator. */
export interface TransitKey {
  type: string;
  versions: Map<number, ServiceKey>;
  minEncryptionVersion: number;
  deletionAllowed: boolean;
}

export interface VaultStub extends StubServer {
  token: string;
  namespace: string | undefined;
  readonly keys: Map<string, TransitKey>;
  /** Creates a key with version 1 and returns its URI. */
  add(name: string, key?: Partial<TransitKey>): string;
}

const errors = (status: number, ...texts: string[]): StubAnswer => ({ status, json: { errors: texts } });

/** The signing part of Vault, with its checks. @see https://developer.hashicorp.com/vault/api-docs/secret/transit */
export async function vaultStub(token: string, mount = "transit"): Promise<VaultStub> {
  const keys = new Map<string, TransitKey>();
  const server = await stubServer(operationOf, answer);
  const stub: VaultStub = Object.assign(server, {
    token,
    namespace: undefined,
    keys,
    add(name: string, key: Partial<TransitKey> = {}) {
      keys.set(name, {
        type: "ecdsa-p256",
        versions: new Map([[1, serviceKey()]]),
        minEncryptionVersion: 0,
        deletionAllowed: false,
        ...key,
      });
      return `vault-transit:${server.url}/${mount}/${name}/1`;
    },
  });
  return stub;

  function answer(operation: string, { url, headers, body }: StubRequest): StubAnswer {
    if (headers["x-vault-token"] !== stub.token || headers["x-vault-namespace"] !== stub.namespace) {
      return errors(403, "permission denied");
    }
    if (headers["x-vault-request"] !== "true") throw new Refusal("no X-Vault-Request", errors(412));
    const prefix = `/v1/${mount}/`;
    if (!url.startsWith(prefix)) return errors(404, `no handler for route "${url}"`);
    const name = url.slice(prefix.length).split("/")[1] ?? "";
    const key = keys.get(name);
    const input = body.length === 0 ? {} : (JSON.parse(body.toString()) as Record<string, unknown>);
    if (operation === "create") {
      if (input["type"] !== "ecdsa-p256" || input["exportable"] !== false) {
        throw new Refusal("a key of another type, or exportable", errors(400, "unexpected"));
      }
      stub.add(name);
      return { status: 200, json: { data: { name } } };
    }
    if (key === undefined) return operation === "sign" ? errors(400, "signing key not found") : errors(404);
    if (operation === "read") return { status: 200, json: { data: description(key) } };
    if (operation === "config") {
      key.deletionAllowed = input["deletion_allowed"] === true;
      return { status: 200, json: { data: {} } };
    }
    if (operation === "delete") {
      if (!key.deletionAllowed) throw new Refusal("deletion is not allowed", errors(400, "deletion is not allowed"));
      keys.delete(name);
      return { status: 204 };
    }
    return sign(key, input);
  }

  function sign(key: TransitKey, input: Record<string, unknown>): StubAnswer {
    const { input: encoded, prehashed, hash_algorithm, marshaling_algorithm, key_version, ...rest } = input;
    const digest = Buffer.from(String(encoded), "base64");
    const version = Number(key_version);
    const signing = key.versions.get(version);
    const isGood =
      prehashed === true &&
      hash_algorithm === "sha2-256" &&
      marshaling_algorithm === "jws" &&
      typeof key_version === "number" &&
      digest.length === 32 &&
      digest.toString("base64") === encoded &&
      Object.keys(rest).length === 0;
    if (!isGood) throw new Refusal("no SHA-256 digest to be signed as JWS", errors(400, "invalid request"));
    if (signing === undefined || version < key.minEncryptionVersion) {
      return errors(400, "requested version for signing is less than the minimum encryption key version");
    }
    const signature = `vault:v${version}:${signing.sign(digest).toString("base64url")}`;
    return { status: 200, json: { data: { signature, key_version: version } } };
  }
}

function operationOf({ method, url }: StubRequest): string {
  const [, operation = "unknown", , config] = /^\/v1\/[\w/-]+?\/(keys|sign)\/([\w.-]+)(\/config)?$/.exec(url) ?? [];
  if (operation !== "keys") return operation;
  return config !== undefined ? "config" : ({ GET: "read", POST: "create", DELETE: "delete" }[method] ?? method);
}

function description(key: TransitKey): object {
  const versions = [...key.versions].map(([version, { publicPem }]) => [
    version,
    { name: "P-256", public_key: publicPem },
  ]);
  return {
    type: key.type,
    exportable: false,
    latest_version: key.versions.size,
    min_encryption_version: key.minEncryptionVersion,
    min_decryption_version: 1,
    keys: Object.fromEntries(versions),
    supports_signing: true,
  };
}
