import { fileURLToPath } from "node:url";
import packageJson from "../package.json" with { type: "json" };
import { drivers, versionOf } from "./npm/drivers.ts";

/** A verifier to measure. */
export interface Verifier {
  readonly name: string;
  readonly version: string;
  readonly typ: string;
  /** Command that starts it. */
  readonly command: readonly string[];
  readonly env: NodeJS.ProcessEnv;
  /** Sets its clock from the outside. Default: it sets its clock to the time in a question. */
  readonly setClock?: (ms: number) => void;
}

const child = fileURLToPath(new URL("npm/child.ts", import.meta.url));

/** Returns the npm verifiers. @param certificate file of the certificate that they trust */
export const fromNpm = (certificate: string): readonly Verifier[] =>
  drivers.map(({ name, packages, typ = "JWT" }) => ({
    name,
    version: packages.length === 0 ? packageJson.version : versionOf(packages),
    typ,
    command: [process.execPath, child, name],
    env: { NODE_EXTRA_CA_CERTS: certificate },
  }));
