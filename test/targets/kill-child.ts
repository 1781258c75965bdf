// Publishes sets to a target endlessly, until it is killed.

import { folderTarget } from "../../src/service/targets/folder.ts";
import { bucketTarget } from "../../src/service/targets/s3-bucket.ts";
import { s3Variables } from "../support/stubs/s3.ts";
import { documentSetAt } from "./kill-documents.ts";

const [where, text = "0"] = process.argv.slice(2);
Object.assign(process.env, s3Variables);
if (where === undefined || where === "") throw new Error("the first argument must be a folder or a bucket URL");
const target = where.startsWith("http:")
  ? bucketTarget({ bucket: "example-issuer", prefix: "" }, ["jwks", ".well-known/openid-configuration"], {
      endpoint: where,
    })
  : folderTarget(where, "a folder");
await target.open();
process.send?.("started");
for (let number = Number(text); ; number += 1) await target.put(documentSetAt(number));
