import * as jose from "jose";
import { SignerError } from "../../src/base/errors.ts";
import { localSigner } from "../../src/keys/signer/local-signer.ts";
import type { ExternalSigner } from "../../src/keys/signer/signer.ts";
import type { ManagerChoice } from "./world.ts";

type Use = "create" | "open" | "sign";

/** An HSM in memory. */
export class Module {
  readonly keys = new Map<string, jose.JWK>();
  /** URIs of signers that were opened and closed again. */
  readonly closed: string[] = [];
  /** Operations that currently fail. */
  readonly broken = new Set<Use>();
  #numbers = 0;

  /** Returns the options of a process whose connection to the module may have its own faults. */
  choice(connection: ReadonlySet<Use> = new Set()) {
    const failIf = (use: Use): void => {
      if (this.broken.has(use) || connection.has(use)) {
        throw new SignerError("ERR_SIGNER_UNAVAILABLE", `the module does not ${use}`);
      }
    };
    return {
      createSigner: async ({ signal }) => {
        signal.throwIfAborted();
        failIf("create");
        const uri = `module:key/${(this.#numbers += 1)}`;
        const { privateKey } = await jose.generateKeyPair("ES256", { extractable: true });
        this.keys.set(uri, await jose.exportJWK(privateKey));
        return this.#signer(uri, failIf);
      },
      openSigner: async (uri) => {
        failIf("open");
        return this.#signer(uri, failIf, () => void this.closed.push(uri));
      },
    } satisfies ManagerChoice;
  }

  async #signer(uri: string, failIf: (use: Use) => void, onClose = () => {}): Promise<ExternalSigner> {
    const jwk = this.keys.get(uri);
    if (jwk === undefined) throw new SignerError("ERR_SIGNER_KEY_STATE", `${uri} does not exist`);
    const signer = await localSigner(jwk);
    let isClosed = false;
    return {
      uri,
      publicKey: signer.publicKey,
      sign: async (input) => {
        failIf("sign");
        if (isClosed) throw new SignerError("ERR_SIGNER_KEY_STATE", `${uri} was closed`);
        return signer.sign(input);
      },
      close: async () => {
        isClosed = true;
        onClose();
      },
    };
  }
}
