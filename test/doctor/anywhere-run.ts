import { type Observations, examine } from "../../src/doctor/index.ts";

// Runs on any runtime with Web Crypto: examines the observations in its argument (JSON, with the body as a string) and prints the codes.
const input = JSON.parse(process.argv.at(-1) ?? "") as { readonly at: number; readonly body: string };
const observations: Observations = { at: input.at, set: { body: new TextEncoder().encode(input.body) } };
console.log(JSON.stringify((await examine(observations)).map(({ code, seen }) => [code, seen])));
