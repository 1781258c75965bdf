import { memoryStore } from "../../src/rotation/store/memory.ts";
import { checkStore } from "./store.ts";

checkStore("memory", async () => {
  const store = memoryStore();
  return { handle: async () => store };
});
