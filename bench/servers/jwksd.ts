import { createServer } from "node:http";
import { listen, makeProvider } from "./setup.ts";

const provider = await makeProvider();
listen(createServer(provider.node));
