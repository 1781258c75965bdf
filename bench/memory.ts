import { type Plan, program } from "./comparisons.ts";
import { type Contestant, load, start } from "./measure.ts";
import { type Section, table } from "./report.ts";

const mebibyte = 1024 * 1024;

/** Measures RSS and heap after a garbage collection, before and after many requests. */
export async function memory({ fewKeys, memoryRequests }: Plan): Promise<Section> {
  const server = await start(["node", "--expose-gc", program("jwksd"), fewKeys]);
  const etag = (await fetch(server.url)).headers.get("etag") ?? "";
  const kinds: Contestant[] = [{}, { "If-None-Match": etag }].map((headers) => ({ name: "jwksd", server, headers }));
  const send = async (count: number): Promise<number> => {
    let sent = 0;
    for (let i = 0; sent < count; i += 1) sent += (await load(kinds[i % 2] as Contestant, 1)).requests;
    return sent;
  };

  // The first requests compile the code and size the heap.
  await send(memoryRequests / 5);
  const before = await server.memory();
  const rows = [["0", mebibytes(before.heapUsed), mebibytes(before.rss)]];
  let sent = 0;
  let after = before;
  while (sent < memoryRequests) {
    sent += await send(memoryRequests / 4);
    after = await server.memory();
    rows.push([sent.toLocaleString("en"), mebibytes(after.heapUsed), mebibytes(after.rss)]);
  }
  await server.stop();
  const heapGrowth = after.heapUsed - before.heapUsed;
  const rssGrowth = after.rss - before.rss;
  return {
    title: "Memory",
    text: `Memory after a garbage collection; the requests alternate between a plain GET and a GET that returns 304:\n\n${table(["requests", "heap MiB", "RSS MiB"], rows)}`,
    goals: [
      {
        name: `memory over ${sent.toLocaleString("en")} requests: heap less than a byte for each, RSS less than 17 MiB`,
        // Less than a byte per request cannot be a leak of objects. V8 resizes its young generation by 16 MiB, which is part of the RSS.
        reached: heapGrowth < sent && rssGrowth < 17 * mebibyte,
        measured: `heap ${signed(heapGrowth / 1024)} KiB, RSS ${signed(rssGrowth / 1024)} KiB`,
      },
    ],
  };
}

const mebibytes = (bytes: number): string => (bytes / mebibyte).toFixed(2);
const signed = (value: number): string => `${value < 0 ? "" : "+"}${value.toFixed(0)}`;
