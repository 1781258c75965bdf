import { invalidOption } from "../base/errors.ts";

/** A server on this machine. */
export interface Listening {
  /** Such as `http://127.0.0.1:9400`. */
  readonly url: string;
  close(this: void): Promise<void>;
}

/** Serves a handler over HTTP. To what it answers `undefined`, the connection ends without a response. */
export async function listen(
  port: number,
  handle: (request: Request) => Promise<Response | undefined>,
): Promise<Listening> {
  const { createServer } = await import("node:http");
  const { buffer } = await import("node:stream/consumers");
  const server = createServer(async (incoming, outgoing) => {
    const { method = "GET", headers } = incoming;
    const body = await buffer(incoming);
    const init = {
      method,
      headers: headers as Record<string, string>,
      ...(body.length > 0 && { body: new Uint8Array(body) }),
    };
    // A target such as "//" is no URL.
    const target = URL.parse(incoming.url ?? "/", url);
    const response = target === null ? undefined : await handle(new Request(target, init));
    if (response === undefined) return void incoming.socket.destroy();
    outgoing.writeHead(response.status, Object.fromEntries(response.headers));
    return outgoing.end(new Uint8Array(await response.arrayBuffer()));
  });
  let url = "";
  return new Promise((resolve, reject) => {
    server.once("error", ({ message }) => reject(invalidOption(`port ${port} cannot be used: ${message}`)));
    server.listen(port, "127.0.0.1", () => {
      url = `http://127.0.0.1:${(server.address() as { readonly port: number }).port}`;
      const close = (): Promise<void> =>
        new Promise((closed) => {
          server.close(() => closed());
          server.closeAllConnections();
        });
      resolve({ url, close });
    });
  });
}
