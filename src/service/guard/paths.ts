const { METHODS } = process.getBuiltinModule("node:http");

/**
 * Rules for paths, each with the message for a path that breaks it. A path that does not break any rule means the same
 * thing to every backend.
 */
const rules: readonly (readonly [broken: RegExp, problem: string])[] = [
  [/^(?!\/)/, "the path does not begin with /"],
  [/[^!-~]/, "the path contains a space, a control character or a character outside ASCII"],
  [/[\\;#]/, "the path contains \\, ; or #"],
  [/%(?![\da-f]{2})/i, "the path contains a % that is not part of an escape"],
  [/%(?:5c|25|3b|3f|23|[01][\da-f]|7f)/i, "the path contains an escaped \\, %, ;, ?, # or control character"],
  // RFC 3986 section 2.3
  [
    /%(?:2[de]|3\d|4[1-9a-f]|5[\daf]|6[1-9a-f]|7[\dae])/i,
    "the path contains an escaped letter, digit, hyphen, period, underscore or tilde",
  ],
  [/\/\//, "the path contains an empty segment"],
  [/\/\.\.?(?:\/|$)/, "the path contains the segment . or .."],
];

/**
 * Returns the reason why a path is rejected, or `undefined` if there is none. Whether an escaped slash is allowed
 * depends on the route, so it is not checked here.
 */
export function pathProblem(path: string): string | undefined {
  const broken = rules.find(([pattern]) => pattern.test(path));
  if (broken !== undefined) return broken[1];
  const plain = decoded(path);
  if (plain === undefined) return "the path's escapes are not valid UTF-8";
  return /\\|\/\.\.?(?:\/|$)/.test(plain)
    ? "the path contains \\ or the segment . or .. when it is decoded"
    : undefined;
}

/**
 * Returns a decoded path with compatibility-equivalent characters replaced by their common form and with spaces around
 * segments removed, or `undefined` if the path is not UTF-8.
 */
function decoded(path: string): string | undefined {
  try {
    const segments = decodeURIComponent(path).normalize("NFKC").split("/");
    return segments.map((segment) => segment.trim()).join("/");
  } catch {
    return undefined;
  }
}

/**
 * Returns the form that two paths share if a backend could treat them as the same path: decoded, in lower case, without
 * periods at the end of a segment, and without empty segments, which can result from an escaped slash or a space.
 */
export function folded(path: string): string {
  const text = decoded(path) ?? path;
  // Converted to upper case first, because some letters have only one of the two forms.
  const segments = text.toUpperCase().toLowerCase().split("/");
  const named = segments.map((segment) => withoutEnd(segment, ". ")).filter((segment) => segment !== "");
  return named.map((segment) => `/${segment}`).join("");
}

/** Removes the given characters from the end of a string. A regular expression would take quadratic time. */
function withoutEnd(text: string, characters: string): string {
  let end = text.length;
  while (end > 0 && characters.includes(text.charAt(end - 1))) end -= 1;
  return text.slice(0, end);
}

/** Methods that routes can have. CONNECT is not included, because it requests a connection and has no path. */
export const methods: readonly string[] = METHODS.filter((method) => method !== "CONNECT");

/** The requests that a route applies to. */
export interface RoutePattern {
  /** Path, without the trailing `/*` of a prefix; for `/*` itself, the empty string. */
  readonly base: string;
  /** The folded form of `base`. */
  readonly foldedBase: string;
  readonly isPrefix: boolean;
  /** Methods that the route applies to. Default: every method. */
  readonly methods?: readonly string[] | undefined;
  /** Whether the path may contain escaped slashes. */
  readonly encodedSlashes?: boolean | undefined;
}

/**
 * Returns the pattern for a route's path, or `undefined` if it is neither a valid path nor a valid path followed by
 * `/*`.
 */
export function patternOf(path: string): Pick<RoutePattern, "base" | "foldedBase" | "isPrefix"> | undefined {
  const isPrefix = path.endsWith("/*");
  const base = isPrefix ? path.slice(0, -2) : path;
  const isPath = (isPrefix && base === "") || (pathProblem(base) === undefined && !/[*?]|%2f/i.test(base));
  return isPath && !(isPrefix && base.endsWith("/")) ? { base, foldedBase: folded(base), isPrefix } : undefined;
}

const covers = (base: string, isPrefix: boolean, path: string): boolean =>
  path === base || (isPrefix && path.startsWith(`${base}/`));

const hasMethod = ({ methods }: RoutePattern, method: string): boolean => methods?.includes(method) ?? true;

/** A request's route, or the reason why the request is refused regardless of its token. */
export type Selected<Route> = { readonly route: Route | undefined } | { readonly problem: string };

/**
 * Selects the first route that matches. Rejects a path whose folded form selects a different route, because a backend
 * might see only that form.
 */
export function selectRoute<Route extends RoutePattern>(
  routes: readonly Route[],
  method: string,
  path: string,
): Selected<Route> {
  const problem = pathProblem(path);
  if (problem !== undefined) return { problem };
  const route = routes.find((each) => hasMethod(each, method) && covers(each.base, each.isPrefix, path));
  if (/%2f/i.test(path) && route?.encodedSlashes !== true)
    return { problem: "the path contains an escaped slash, which its route does not allow" };
  const plain = folded(path);
  const other = routes.find((each) => hasMethod(each, method) && covers(each.foldedBase, each.isPrefix, plain));
  if (other !== route)
    return {
      problem: "the path would select a different route if it were decoded, lowercased, and stripped of empty segments",
    };
  return { route };
}

/** Returns the positions of the first route that can never be selected and of the earlier routes that hide it. */
export function hiddenRoute(
  routes: readonly RoutePattern[],
): readonly [hidden: number, by: readonly number[]] | undefined {
  for (const [index, later] of routes.entries()) {
    const hides = (earlier: RoutePattern): boolean =>
      (earlier.isPrefix || !later.isPrefix) && covers(earlier.foldedBase, earlier.isPrefix, later.foldedBase);
    // A route without methods also applies to methods that no other route lists.
    const by = (later.methods ?? [""]).map((method) =>
      routes.slice(0, index).findIndex((earlier) => hasMethod(earlier, method) && hides(earlier)),
    );
    if (!by.includes(-1)) return [index, [...new Set(by)]];
  }
  return undefined;
}
