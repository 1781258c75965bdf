export { type Loaded, readEncryptionKeyset, readKeyset } from "./key-files.ts";
