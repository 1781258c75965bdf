import { invalidOption } from "../../base/errors.ts";
import { type CopiedSite, type StaticDocument, headersOf, documentPaths } from "./documents.ts";

/**
 * Refuses names that a configuration cannot quote: nginx reads `$` in the name of a file as a variable, and Caddy reads `*` in a path as a
 * pattern, also between quotes.
 *
 * @throws ConfigError `ERR_OPTION_INVALID`
 */
export function checkServable(folder: string, site: CopiedSite): void {
  const asked = documentPaths(site).flatMap((document) => document.asked);
  const names = [["the folder", folder], ...asked.map((path) => ["the path", path])];
  for (const [what, name = ""] of names) {
    if (/^[^"`$\\{}*\p{C}]+$/u.test(name)) continue;
    throw invalidOption(
      `${what} ${JSON.stringify(name)} has a character in its name that configurations of nginx or Caddy do not take; choose another one`,
    );
  }
}

/** What a `server` block of nginx includes. @see https://nginx.org/en/docs/http/ngx_http_core_module.html */
export function nginxConfig(folder: string, documents: readonly StaticDocument[], site: CopiedSite): string {
  const locations = askedFor(documents, site).map(([asked, document]) => {
    const { contentType, long, short, others } = headersOf(document, site);
    const mode =
      short === undefined
        ? ""
        : `
  if (-f "${folder}/.jwksd/rotation") { set $jwksd_cache_control "${short}"; }`;
    return `
location = "${asked}" {
  alias "${folder}/${document.path}";
  types { }
  default_type ${contentType};
  set $jwksd_cache_control "${long}";${mode}
  add_header Cache-Control $jwksd_cache_control;
${others.map(([name, value]) => `  add_header ${name} "${value}";`).join("\n")}
  if ($request_method !~ "^(GET|HEAD)$") {
    add_header Allow "GET, HEAD" always;
    add_header Cache-Control no-store always;
    return 405;
  }
}
`;
  });
  return `# Made by jwksd publish. In a server block of nginx:  include "${folder}/.jwksd/nginx.conf";
# It stays the same while keys rotate.
${locations.join("")}`;
}

/** What a site block of Caddy imports. @see https://caddyserver.com/docs/caddyfile/concepts */
export function caddyConfig(folder: string, documents: readonly StaticDocument[], site: CopiedSite): string {
  const handles = askedFor(documents, site).map(([asked, document]) => {
    const { contentType, long, short, others } = headersOf(document, site);
    const marker = `file {
				root "${folder}"
				try_files /.jwksd/rotation
			}`;
    const cache =
      short === undefined
        ? `		header Cache-Control "${long}"`
        : `		@rotation ${marker}
		header @rotation Cache-Control "${short}"
		@long not ${marker}
		header @long Cache-Control "${long}"`;
    return `
handle "${asked}" {
	@read method GET HEAD
	handle @read {
		root * "${folder}"
		rewrite * "/${document.path}"
		header Content-Type "${contentType}"
${cache}
${others.map(([name, value]) => `		header ${name} "${value}"`).join("\n")}
		file_server
	}
	handle {
		header Allow "GET, HEAD"
		header Cache-Control no-store
		respond 405
	}
}
`;
  });
  return `# Made by jwksd publish. In a site block of Caddy:  import "${folder}/.jwksd/Caddyfile"
# It stays the same while keys rotate.
${handles.join("")}`;
}

/** Each path at which clients ask for a document, with that document. */
function askedFor(documents: readonly StaticDocument[], site: CopiedSite): [asked: string, document: StaticDocument][] {
  return documentPaths(site).flatMap(({ path, asked }) =>
    documents
      .filter((document) => document.path === path)
      .flatMap((document) => asked.map((one): [string, StaticDocument] => [one, document])),
  );
}
