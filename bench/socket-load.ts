// Sends requests on several connections to a Unix socket, each after the previous response, and prints number and latency. Runs in Bun, whose
// sockets cost half as much as Node's: the load generator shares the servers' cores, so it does as little as possible.

interface Connection {
  write(data: string): void;
  end(): void;
}

interface Options {
  readonly unix: string;
  readonly socket: { open(socket: Connection): void; data(socket: Connection, chunk: Buffer): void };
}

declare const Bun: { connect(options: Options): Promise<Connection> };

const [unix = "", count, milliseconds, request = ""] = process.argv.slice(2);
const latencies: number[] = [];
/** Length of the first response, which all responses have. */
let length: number | undefined;

function ask(): Promise<Connection> {
  let left = 0;
  let last: number;
  return Bun.connect({
    unix,
    socket: {
      open(socket) {
        last = performance.now();
        socket.write(request);
      },
      data(socket, chunk) {
        if (left === 0) {
          if (chunk.toString("latin1", 9, 12) !== "200") throw new Error(chunk.toString());
          left = length ??= lengthOf(chunk.toString("latin1"));
        }
        left -= chunk.length;
        if (left > 0) return;
        const now = performance.now();
        latencies.push(now - last);
        last = now;
        if (now - begun < Number(milliseconds)) socket.write(request);
        else socket.end();
      },
    },
  });
}

/** Returns the length of a response from its beginning. */
function lengthOf(reply: string): number {
  const [head = "", length] = /^[^]*?content-length: (\d+)[^]*?\r\n\r\n/i.exec(reply) ?? [];
  return head.length + Number(length);
}

const begun = performance.now();
await Promise.all(Array.from({ length: Number(count) }, ask));
process.on("beforeExit", () => {
  console.log(JSON.stringify({ latencies, seconds: (performance.now() - begun) / 1000 }));
});
