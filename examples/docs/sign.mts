import { createSignClient } from "jwksd/sign-client";

const tokens = createSignClient({ socket: "/run/jwksd/sign.sock" });
const token = await tokens.sign({ sub: "alice", aud: "my-api" }, { lifetimeSeconds: 300 });
console.log(token);
