// Asks on some connections to a Unix socket at once, each time when the reply before has come, and prints how often and how fast. Runs on Bun,
// whose sockets cost half of what Node's do: the load generator has the cores of the servers, so it does as little as it can.

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
const took: number[] = [];
/** All replies are as long as the first one. */
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
        took.push(now - last);
        last = now;
        if (now - begun < Number(milliseconds)) socket.write(request);
        else socket.end();
      },
    },
  });
}

/** Of a reply, from its beginning. */
function lengthOf(reply: string): number {
  const [head = "", length] = /^[^]*?content-length: (\d+)[^]*?\r\n\r\n/i.exec(reply) ?? [];
  return head.length + Number(length);
}

const begun = performance.now();
await Promise.all(Array.from({ length: Number(count) }, ask));
process.on("beforeExit", () => {
  console.log(JSON.stringify({ took, seconds: (performance.now() - begun) / 1000 }));
});
