import { type Observations, examine } from "../../src/doctor/index.ts";

// Runs wherever there is Web Crypto: prints the codes that are found in what comes as JSON, the body as a text.
const input = JSON.parse(process.argv.at(-1) ?? "") as { readonly at: number; readonly body: string };
const observations: Observations = { at: input.at, set: { body: new TextEncoder().encode(input.body) } };
console.log(JSON.stringify((await examine(observations)).map(({ code, seen }) => [code, seen])));
