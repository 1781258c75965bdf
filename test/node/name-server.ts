import { createSocket } from "node:dgram";
import { once } from "node:events";
import { isIP } from "node:net";
import type { TestContext } from "node:test";

/** The response for a name: its addresses, a code (2 for SERVFAIL, 5 for REFUSED), or none. */
type Answer = readonly string[] | number | "silence";

/** A name server on loopback. */
export interface NameServer {
  /** Address in the form that `dns.setServers` accepts. */
  readonly address: string;
  /** Queried names, each with its type, such as `a.example AAAA`. */
  readonly questions: string[];
}

/** Starts a name server. It reports unknown names as nonexistent (NXDOMAIN). @see RFC 1035 section 4 */
export async function nameServer(t: TestContext, answers: Readonly<Record<string, Answer>>): Promise<NameServer> {
  const socket = createSocket("udp4");
  const questions: string[] = [];
  socket.on("message", (query, { port, address }) => {
    const { name, type, end } = question(query);
    questions.push(`${name} ${type === 28 ? "AAAA" : "A"}`);
    const answer = answers[name] ?? 3;
    if (answer === "silence") return;
    const addresses = typeof answer === "number" ? [] : answer.filter((text) => isIP(text) === (type === 28 ? 6 : 4));
    const head = Buffer.alloc(12);
    query.copy(head, 0, 0, 2);
    head.writeUInt16BE(0x81_80 | (typeof answer === "number" ? answer : 0), 2);
    head.writeUInt16BE(1, 4);
    head.writeUInt16BE(addresses.length, 6);
    socket.send(
      Buffer.concat([head, query.subarray(12, end), ...addresses.map((text) => record(type, text))]),
      port,
      address,
    );
  });
  socket.bind(0, "127.0.0.1");
  await once(socket, "listening");
  t.after(() => socket.close());
  return { address: `127.0.0.1:${socket.address().port}`, questions };
}

function question(query: Buffer): { name: string; type: number; end: number } {
  const labels: string[] = [];
  let at = 12;
  for (let length = query[at] ?? 0; length > 0; length = query[at] ?? 0) {
    labels.push(query.toString("latin1", at + 1, at + 1 + length));
    at += 1 + length;
  }
  return { name: labels.join(".").toLowerCase(), type: query.readUInt16BE(at + 1), end: at + 5 };
}

/** Returns a resource record, whose name points to the question's name. */
function record(type: number, address: string): Buffer {
  const data =
    type === 28
      ? Buffer.from(
          ipv6Groups(address)
            .map((group) => group.padStart(4, "0"))
            .join(""),
          "hex",
        )
      : Buffer.from(address.split(".").map(Number));
  const head = Buffer.from([0xc0, 12, 0, type, 0, 1, 0, 0, 0, 60, 0, data.length]);
  return Buffer.concat([head, data]);
}

function ipv6Groups(address: string): string[] {
  const [head = "", tail = ""] = address.split("::");
  const [before, after] = [head.split(":").filter(Boolean), tail.split(":").filter(Boolean)];
  return [...before, ...Array<string>(8 - before.length - after.length).fill("0"), ...after];
}
