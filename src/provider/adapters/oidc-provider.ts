/**
 * The keys of a provider that is made with the package `oidc-provider`.
 *
 * @module jwksd/oidc-provider
 */

import type { Context } from "oidc-provider";
import { serial } from "../../base/async.ts";
import { ConfigError } from "../../base/errors.ts";
import { importFailure } from "../../base/optional-package.ts";
import { wellKnownPath } from "../../base/urls.ts";
import type { NodeRequest, NodeResponse } from "../../publish/node.ts";
import { setupOf, publicPart } from "../provider.ts";
import { provide } from "../service-provider.ts";
import type { Provider } from "../types.ts";
import { type Configuration, checkConfiguration, configurationWith } from "./oidc-configuration.ts";
import { type OidcKeys, encryptionKeys, signingKeys } from "./oidc-keys.ts";

export type { KeysOnDemand } from "../managed-keys.ts";
export type { OidcKeys } from "./oidc-keys.ts";

/** The part of an instance of oidc-provider that jwksd uses. */
export interface OidcInstance {
  readonly issuer: string;
  /** Whether it reads `X-Forwarded-Proto`. */
  readonly proxy?: boolean;
  use(middleware: never): unknown;
  callback(): (request: never, response: never) => unknown;
}

/** An OpenID provider whose keys rotate. */
export interface OidcWithKeys<Instance> {
  /** Answers requests of `node:http`, Express, Fastify and Koa, whose URL may be without the path of the issuer. */
  handler(this: void, request: NodeRequest, response: NodeResponse): void;
  /** The instance of oidc-provider that takes new requests. Read it anew in each request. */
  readonly provider: Instance;
  /** Publishes the JWK Set, signs and verifies. */
  readonly keys: Provider;
}

/**
 * Gives managed keys to an OpenID provider of the package `oidc-provider`. An instance of oidc-provider keeps its keys for life. So each
 * change of the keys makes a new instance, which takes new requests; the old one ends those that it has. jwksd answers at `jwks_uri`.
 *
 * @param configuration of oidc-provider, with an `adapter` and without `jwks`
 * @param create makes an instance of the issuer of the keys, with all its listeners and middleware, from the configuration that it is given
 * @throws ConfigError `ERR_OPTION_INVALID`, `ERR_PACKAGE_MISSING`, and those of `createProvider`
 */
export async function withJwksd<Given extends object, Instance extends OidcInstance>(
  manager: OidcKeys,
  configuration: Given,
  create: (configuration: Given) => Instance,
): Promise<OidcWithKeys<Instance>> {
  const given: Given & Configuration = configuration;
  await manager.onDemand?.fresh();
  checkConfiguration(given, manager.maxTokenLifetimeSeconds);
  const Key = await externalSigningKey();
  const options = { keys: manager, discovery: false, endpoints: { jwks: given.routes?.jwks } };
  // Keys on demand were read, and requests read them again before they come here.
  const keys = await provide({ ...setupOf([options]), onDemand: undefined });

  async function newInstance() {
    const states = statesOf(manager);
    let handle = await keys.signingKey();
    /** Goes by what was read last, until another key takes the place of this one. */
    const renewed = async () => {
      const next = await keys.signingKey();
      if (next.kid === handle.kid) handle = next;
      return handle;
    };
    const signing = signingKeys(Key, manager, handle, renewed);
    const encryption = given.features?.encryption?.enabled === true ? await encryptionKeys(manager) : [];
    const instance = create(configurationWith(given, [...signing, ...encryption]));
    checkIssuer(instance.issuer, manager.issuer);
    instance.use(hideOwnSet as never);
    const answer = instance.callback() as (...exchange: unknown[]) => unknown;
    return { states, instance, renewed, answer };
  }

  /** oidc-provider would answer other spellings of the path, such as `/JWKS`, with keys that are not published. */
  const hideOwnSet = (ctx: Context, next: () => Promise<void>): Promise<void> =>
    next().then(() => {
      if (ctx.oidc?.route !== "jwks") return;
      for (const name of ctx.res.getHeaderNames()) ctx.res.removeHeader(name);
      ctx.respond = false;
      publish(ctx.req, ctx.res);
    });

  /** The JWK Set is known by its path alone as well, so a framework may have stripped that of the issuer. */
  const publish = ({ method, url, headers }: NodeRequest, response: NodeResponse, next?: () => void): void =>
    keys.node({ method, url, headers }, response, next);

  let current = await newInstance();
  const inTurn = serial();
  await keys.follow(() =>
    inTurn(async () => {
      if (statesOf(manager) !== current.states) current = await newInstance();
    }),
  );

  let hasWarned = !manager.issuer.startsWith("https:");
  /** The URLs that oidc-provider publishes begin as its requests seem to. */
  function warnOfPlainUrls({ socket }: NodeRequest & { readonly socket?: { readonly encrypted?: boolean } }): void {
    if (hasWarned || current.instance.proxy === true || socket?.encrypted === true) return;
    hasWarned = true;
    const message = `the issuer is ${manager.issuer}, and requests come without TLS, so oidc-provider publishes http URLs; set provider.proxy = true behind a proxy that ends TLS and sets X-Forwarded-Proto (docs/oidc-provider.md)`;
    process.emitWarning(message, "JwksdWarning");
  }

  const mountPath = new URL(manager.issuer).pathname.replace(/\/$/, "");
  return {
    handler(request, response) {
      warnOfPlainUrls(request);
      publish(request, response, () => {
        // Where no key may sign, all is answered that needs no signature.
        void Promise.resolve(manager.onDemand?.fresh())
          .then(() => current.renewed())
          .catch(() => {})
          .then(() => current.answer(withoutMountPath(request, mountPath), response));
      });
    },
    get provider() {
      return current.instance;
    },
    keys: publicPart(keys),
  };
}

/** @throws ConfigError `ERR_PACKAGE_MISSING` */
async function externalSigningKey() {
  try {
    return (await import("oidc-provider")).ExternalSigningKey;
  } catch (error) {
    throw importFailure("oidc-provider", error);
  }
}

/** All of the keys that an instance depends on. */
const statesOf = ({ records }: OidcKeys): string => JSON.stringify(records.map(({ kid, state }) => [kid, state]));

function checkIssuer(issuer: string, expected: string): void {
  if (issuer === expected) return;
  const message = `the issuer of oidc-provider is ${JSON.stringify(issuer)}, and that of its keys ${JSON.stringify(expected)}`;
  throw new ConfigError("ERR_OPTION_INVALID", `${message}; create it with the issuer of the manager`);
}

const metadataPaths = (["openid-configuration", "oauth-authorization-server"] as const).map((name) =>
  wellKnownPath(name),
);

/**
 * oidc-provider routes by the URL without mount path, and makes its own URLs from both; frameworks that strip the path leave both. Of the metadata,
 * it does not know the paths where the one of the issuer comes last (RFC 8414 section 3.1).
 */
function withoutMountPath(request: NodeRequest, mountPath: string): NodeRequest {
  const { url = "/", originalUrl = url } = request;
  const metadataPath = metadataPaths.find((path) => originalUrl.split("?", 1)[0] === path + mountPath);
  if (metadataPath !== undefined)
    return Object.assign(request, { originalUrl: mountPath + metadataPath, url: metadataPath });
  if (originalUrl !== url || !url.startsWith(`${mountPath}/`)) return request;
  return Object.assign(request, { originalUrl, url: url.slice(mountPath.length) });
}
