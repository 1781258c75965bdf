import type { Keysets } from "../../src/library/provider/managed-keys.ts";
import { once } from "node:events";
import { createServer } from "node:http";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { createAudit } from "../../src/service/signing/audit.ts";
import { signHandler } from "../../src/service/signing/handler.ts";
import { createKubernetesSigner } from "../../src/service/kubernetes/kubernetes.ts";
import { createSigning } from "../../src/service/signing/signing.ts";
import { type Replica, type World, issuer } from "../manager/world.ts";
import { temporaryFolder } from "../support/service.ts";

/** Serves tokens of a replica in simulated time, as `jwksd serve` does: a key is published before it signs. Gives the path of the socket,
 * and of another one for Kubernetes. */
export async function serveTokens(
  t: TestContext,
  world: World,
  { manager, provider }: Replica,
): Promise<{ path: string; kubernetes: string }> {
  const { clock } = world;
  const signing = await createSigning(issuer, manager, clock);
  const update = async ({ keyset }: Keysets): Promise<void> => {
    await provider.update({ keyset });
    await signing.update(keyset);
  };
  await world.until(manager.subscribe({ update }));
  const audit = createAudit(clock, () => {});
  const sign = { signing, policy: {}, audit };
  const server = createServer(signHandler(sign));
  const signer = createKubernetesSigner(sign, { issuer, formerKeys: [], clock });
  const folder = await temporaryFolder(t);
  const [path, kubernetes] = [join(folder, "s"), join(folder, "k")];
  server.listen(path);
  signer.server.listen(kubernetes);
  await once(server, "listening");
  t.after(async () => {
    await signer.stop();
    server.closeAllConnections();
    server.close();
    audit.end();
  });
  return { path, kubernetes };
}
