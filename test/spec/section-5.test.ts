import { checkTable, defaultSetup, expectedSet, ok } from "./table.ts";

checkTable([
  {
    section: "5",
    name: "no credentials are asked for, and the response is public",
    input: { target: "/jwks" },
    expect: ok(expectedSet(defaultSetup.keys)),
  },
]);
