/**
 * Keys for a provider that uses the `oidc-provider` package.
 *
 * @module jwksd/oidc-provider
 */

import type { Context } from "oidc-provider";
import { serial } from "../../base/async.ts";
import { invalidOption } from "../../base/errors.ts";
import { importFailure } from "../../base/optional-package.ts";
import { wellKnownPath } from "../../base/urls.ts";
import type { NodeRequest, NodeResponse } from "../../publish/node-response.ts";
import { setupOf } from "../create-provider.ts";
import { provide } from "../provider.ts";
import type { Provider } from "../types.ts";
import { type Configuration, checkConfiguration, configurationWith } from "./oidc-configuration.ts";
import { type OidcKeys, encryptionKeys, signingKeys } from "./oidc-keys.ts";

/** The part of an oidc-provider instance that jwksd uses. */
interface OidcInstance {
  readonly issuer: string;
  /** Whether the instance reads `X-Forwarded-Proto`. */
  readonly proxy?: boolean;
  use(middleware: never): unknown;
  callback(): (request: never, response: never) => unknown;
}

/** An OpenID provider whose `oidc-provider` instance is replaced when its keys change. */
export interface RotatingOidcProvider<Instance> {
  /**
   * Handles requests from `node:http`, Express, Fastify and Koa. The request URLs do not need to include the issuer's
   * path.
   */
  handler(this: void, request: NodeRequest, response: NodeResponse): void;
  /** oidc-provider instance that handles new requests. Read this property again on every request. */
  readonly provider: Instance;
  /** The provider that publishes the JWK Set, signs and verifies. */
  readonly keys: Provider;
}

/**
 * Creates an OpenID provider with managed keys, using the `oidc-provider` package. An oidc-provider instance cannot
 * change its keys, so every key change creates a new instance for new requests, while the old instance finishes its
 * requests in flight. jwksd serves `jwks_uri`.
 *
 * @param configuration oidc-provider's configuration; must have an `adapter` but no `jwks`
 * @param create receives a configuration and uses it to create an instance for the keys' issuer, with all listeners and
 * middleware
 * @throws ConfigError `ERR_OPTION_INVALID`, `ERR_PACKAGE_MISSING`, and the same errors as `createProvider`
 */
export async function createRotatingOidcProvider<Given extends object, Instance extends OidcInstance>(
  manager: OidcKeys,
  configuration: Given,
  create: (configuration: Given) => Instance,
): Promise<RotatingOidcProvider<Instance>> {
  const given: Given & Configuration = configuration;
  await manager.onDemand?.fresh();
  checkConfiguration(given, manager.maxTokenLifetimeSeconds);
  const Key = await externalSigningKey();
  const options = { keys: manager, discovery: false, endpoints: { jwks: given.routes?.jwks } };
  // On-demand keys were read above, and the handler rereads them before a request gets here.
  const keys = await provide({ ...setupOf([options]), onDemand: undefined });

  async function newInstance() {
    const states = statesOf(manager);
    let handle = await keys.signingKey();
    /** Returns the latest handle for this key, until a different key becomes active. */
    const renewed = async () => {
      const next = await keys.signingKey();
      if (next.kid === handle.kid) handle = next;
      return handle;
    };
    const signing = signingKeys(Key, manager, handle, renewed);
    const encryption = given.features?.encryption?.enabled === true ? await encryptionKeys(manager) : [];
    const instance = create(configurationWith(given, [...signing, ...encryption]));
    checkSameIssuer(instance.issuer, manager.issuer);
    instance.use(replaceOwnSet as never);
    const callback = instance.callback() as (...exchange: unknown[]) => unknown;
    return { states, instance, renewed, callback };
  }

  /**
   * Replaces oidc-provider's own JWK Set, which would serve unpublished keys at other spellings of the path, such as
   * `/JWKS`.
   */
  const replaceOwnSet = (ctx: Context, next: () => Promise<void>): Promise<void> =>
    next().then(() => {
      if (ctx.oidc?.route !== "jwks") return;
      for (const name of ctx.res.getHeaderNames()) ctx.res.removeHeader(name);
      ctx.respond = false;
      publish(ctx.req, ctx.res);
    });

  /**
   * Serves the JWK Set. Also accepts a path without the issuer's path, because a framework may have stripped that part.
   */
  const publish = ({ method, url, headers }: NodeRequest, response: NodeResponse, next?: () => void): void =>
    keys.node({ method, url, headers }, response, next);

  let current = await newInstance();
  const queue = serial();
  await keys.follow(() =>
    queue(async () => {
      if (statesOf(manager) !== current.states) current = await newInstance();
    }),
  );

  let hasWarned = !manager.issuer.startsWith("https:");
  /** Warns if requests seem to arrive without TLS, because oidc-provider then publishes http URLs. */
  function warnOfPlainUrls({ socket }: NodeRequest & { readonly socket?: { readonly encrypted?: boolean } }): void {
    if (hasWarned || current.instance.proxy === true || socket?.encrypted === true) return;
    hasWarned = true;
    const message = `the issuer is ${manager.issuer}, but requests arrive without TLS, so oidc-provider publishes http URLs; if a proxy terminates TLS and sets X-Forwarded-Proto, set provider.proxy = true (docs/oidc-provider.md)`;
    process.emitWarning(message, "JwksdWarning");
  }

  const mountPath = new URL(manager.issuer).pathname.replace(/\/$/, "");
  return {
    handler(request, response) {
      warnOfPlainUrls(request);
      publish(request, response, () => {
        // If no key can sign, requests that do not need a signature are still handled.
        void Promise.resolve(manager.onDemand?.fresh())
          .then(() => current.renewed())
          .catch(() => {})
          .then(() => current.callback(withoutMountPath(request, mountPath), response));
      });
    },
    get provider() {
      return current.instance;
    },
    keys: keys.publicPart,
  };
}

/** Loads oidc-provider's key class. @throws ConfigError `ERR_PACKAGE_MISSING` */
async function externalSigningKey() {
  try {
    return (await import("oidc-provider")).ExternalSigningKey;
  } catch (error) {
    throw importFailure("oidc-provider", error);
  }
}

/** Returns a string that changes whenever a change to the keys requires a new instance. */
const statesOf = ({ records }: OidcKeys): string => JSON.stringify(records.map(({ kid, state }) => [kid, state]));

function checkSameIssuer(issuer: string, expected: string): void {
  if (issuer === expected) return;
  const message = `oidc-provider's issuer is ${JSON.stringify(issuer)}, but its keys belong to ${JSON.stringify(expected)}`;
  throw invalidOption(`${message}; create the provider with the manager's issuer`);
}

const metadataPaths = (["openid-configuration", "oauth-authorization-server"] as const).map((name) =>
  wellKnownPath(name),
);

/**
 * Sets `url` and `originalUrl` in the same way as a framework that strips the mount path, because oidc-provider routes
 * by the URL without the mount path and derives its own URLs from both. oidc-provider does not support metadata paths
 * that end with the issuer's path (RFC 8414 section 3.1).
 */
function withoutMountPath(request: NodeRequest, mountPath: string): NodeRequest {
  const { url = "/", originalUrl = url } = request;
  const metadataPath = metadataPaths.find((path) => originalUrl.split("?", 1)[0] === path + mountPath);
  if (metadataPath !== undefined)
    return Object.assign(request, { originalUrl: mountPath + metadataPath, url: metadataPath });
  if (originalUrl !== url || !url.startsWith(`${mountPath}/`)) return request;
  return Object.assign(request, { originalUrl, url: url.slice(mountPath.length) });
}
