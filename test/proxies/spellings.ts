// Spellings of paths that some program reads as the path of another route.

/** The first segments of the routes: one for each kind of requirement. */
export const routes = ["public", "orders", "files", "admin"] as const;

const words = (text: string): string[] => text.trim().split(/[ \n]+/);

const separators = [...words(String.raw`/ %2f %2F \ %5c %5C // /./ %252f %c0%af ;/ /;/ %00/`), "\xef\xbc\x8f"];
const parents = [
  ...words(`.. %2e%2e %2E%2E .%2e %2e. %252e%252e ..; ..;x=1 ..%3b ..%00 %c0%ae%c0%ae %u002e%u002e ..%20 .%09. ...`),
  "\xef\xbc\x8e\xef\xbc\x8e",
  "%ef%bc%8e%ef%bc%8e",
];

/** Leaves another route's prefix, in every way of writing the separators and the parent. */
const climbs = ["/public", "/files"].flatMap((prefix) =>
  parents.flatMap((parent) =>
    separators.flatMap((separator) => {
      const up = `${separator}${parent}`;
      return [`${up}${separator}admin`, `${up}/admin`, `/a${up}${up}/admin`].map((rest) => prefix + rest);
    }),
  ),
);

/** Names /admin without climbing. */
const names = words(String.raw`
    //admin ///admin /./admin /.//admin /%2fadmin /%2e/admin \admin /\admin /%5cadmin /;/admin /;x/admin
    /%61dmin /%41dmin /a%64min /admi%6e /%2561dmin /ADMIN /Admin /aDmIn/x /%41DMIN /%ef%bd%81dmin /adm%c4%b1n /adm%c4%b0n
    /admin%20 /admin%00 /admin%00/x /admin%0a /admin%09 /admin%2f /admin%2fx /admin%5c /admin; /admin;x=y /admin;/x /admin%3b
    /admin%3fx /admin%23x /admin. /admin./x /admin%2e /admin/ /admin// /admin/. /admin/.. /admin/x/.. /admin% /admin%2 /admin%zz
    /admin%252f /admin?x /admin#x /admin?/../public /admin#/../public /admin:443 /admin~ /admin$ /admin|x
    /%e2%80%8badmin /%c2%adadmin /%0dadmin /%0aadmin`);

/** Names with bytes that a path must not have. */
const rawBytes = [
  "/\xef\xbd\x81dmin",
  "/adm\xc4\xb1n",
  "/\xc3\xa4dmin",
  "/\tadmin",
  "/\x01admin",
  "/admin\x7f",
  "/a\xaddmin",
];

/** Has two halves, of which programs see one. */
const halves = words(`
  /public?/../../admin /public#/../../admin /public%3f/../../admin /public%23/../../admin /public/admin /public%2fadmin
  /public;/../admin /public;%2f..%2fadmin /public/..;/admin /public/%2e%2e;/admin /publicity/admin /public../admin
  /public..%2fadmin /public%20/../admin /public/x%00/../../admin /public%0a/../admin /public/@/../../admin
  /public/.%0d./admin /public/.%00./admin /public/%2e%2e%2f%2e%2e%2fadmin /public/%2e%2e/%2e%2e/%2e%2e/admin
  /files/..%2fadmin /files/a%2f..%2f..%2fadmin /files%2f..%2fadmin /files/%2fadmin /files/%2f%2e%2e%2fadmin /files/a%2fadmin
  /files/.%2f../admin /files/..%2f..%2fadmin%2fx /files/a%2f%2f..%2f..%2fadmin /files/..%2Fadmin?x=%2f /files/%2e%2e%2fadmin`);

/** Request targets that are not paths. A host in a target must not become part of the path that is checked. */
const targets = words(String.raw`
  * admin admin/x ?/admin #/admin http:/admin http:admin //localhost/admin /http://localhost/admin
  http://localhost/admin http://localhost/public/../admin http://localhost//admin HTTP://localhost/ADMIN
  http://localhost?/../admin http://localhost#/admin http://public/admin http://a@localhost/admin http://localhost\admin
  http://[::1]/admin https://localhost/admin ftp://localhost/admin localhost:80 /.//localhost/admin`);

export const spellings: readonly string[] = [...new Set([...names, ...rawBytes, ...halves, ...targets, ...climbs])];

/** Paths without a trick, and the route of each. */
export const cleanPaths: Readonly<Record<string, (typeof routes)[number]>> = {
  "/public/": "public",
  "/public/a%20b": "public",
  "/orders/1?x=/../admin": "orders",
  "/files/a%2fb/c": "files",
  "/admin/": "admin",
  "/admin/x": "admin",
};
