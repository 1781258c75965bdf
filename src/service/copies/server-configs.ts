import { ConfigError } from "../../base/errors.ts";
import { type Site, type StaticDocument, headersOf, pathsOf } from "./documents.ts";

/**
 * Refuses names that a configuration cannot quote: nginx reads `$` in the name of a file as a variable, and Caddy reads `*` in a path as a
 * pattern, also between quotes.
 *
 * @throws ConfigError `ERR_OPTION_INVALID`
 */
export function checkServable(folder: string, site: Site): void {
  const names = [["the folder", folder], ...pathsOf(site).map((path) => ["the path", requestPath(site, path)])];
  for (const [what, name = ""] of names) {
    if (/^[^"`$\\{}*\p{C}]+$/u.test(name)) continue;
    throw new ConfigError(
      "ERR_OPTION_INVALID",
      `${what} ${JSON.stringify(name)} has a character in its name that configurations of nginx or Caddy do not take; choose another one`,
    );
  }
}

/** What a `server` block of nginx includes. @see https://nginx.org/en/docs/http/ngx_http_core_module.html */
export function nginxConfig(folder: string, documents: readonly StaticDocument[], site: Site): string {
  const locations = documents.map((document) => {
    const { contentType, long, short, others } = headersOf(document, site);
    const mode =
      short === undefined
        ? ""
        : `
  if (-f "${folder}/.jwksd/rotation") { set $jwksd_cache_control "${short}"; }`;
    return `
location = "${requestPath(site, document.path)}" {
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
export function caddyConfig(folder: string, documents: readonly StaticDocument[], site: Site): string {
  const handles = documents.map((document) => {
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
handle "${requestPath(site, document.path)}" {
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

/** The path of the document in requests. */
function requestPath({ issuer }: Site, path: string): string {
  return `${new URL(issuer).pathname.replace(/\/$/, "")}/${path}`;
}
