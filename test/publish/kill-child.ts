// Publishes one set after the other to a target, without an end. It is killed.
import { bucketTarget } from "../../src/service/copies/bucket.ts";
import { folderTarget } from "../../src/service/copies/folder.ts";
import { site, documentSetAt } from "./kill-documents.ts";

const [where, text = "0"] = process.argv.slice(2);
if (where === undefined || where === "") throw new Error("the first argument is a folder or the URL of a bucket");
const target = where.startsWith("http:")
  ? bucketTarget({ bucket: "example-issuer", prefix: "" }, ["jwks", ".well-known/openid-configuration"], {
      region: "eu-central-1",
      endpoint: where,
      credentials: { accessKeyId: "AKIAEXAMPLE", secretAccessKey: "secret" },
    })
  : folderTarget(where, "a folder", site);
await target.open();
process.send?.("begun");
for (let number = Number(text); ; number += 1) await target.put(documentSetAt(number));
