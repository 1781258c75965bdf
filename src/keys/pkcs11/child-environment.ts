/**
 * Variables that most programs need and that do not contain secrets. Their names are listed in upper case, because
 * Windows ignores the case of variable names. NODE_COMPILE_CACHE lets the child reuse the code that Node has compiled
 * for this process.
 *
 * @see https://specifications.freedesktop.org/basedir-spec/latest/
 */
const common = `
  PATH HOME USER LOGNAME LANG LANGUAGE LC_* TZ TMPDIR LD_LIBRARY_PATH
  XDG_CONFIG_HOME XDG_DATA_HOME XDG_STATE_HOME XDG_RUNTIME_DIR NODE_COMPILE_CACHE
  SYSTEMROOT SYSTEMDRIVE WINDIR TEMP TMP USERPROFILE APPDATA LOCALAPPDATA PROGRAMDATA
`;

/**
 * Returns the environment for a child process: only the common variables and the named ones. The parent's other
 * variables, which may be secrets, do not reach the child.
 *
 * @param names variable names; a name that ends in `*` matches all names with this prefix
 */
export function childEnvironment(
  environment: Readonly<Record<string, string | undefined>>,
  names: readonly string[],
): Record<string, string> {
  const allowed = [...common.trim().split(/\s+/), ...names].map((name) => name.toUpperCase());
  const exact = new Set(allowed);
  const beginnings = allowed.filter((name) => name.endsWith("*")).map((name) => name.slice(0, -1));
  const isAllowed = (name: string): boolean =>
    exact.has(name) || beginnings.some((beginning) => name.startsWith(beginning));
  const entries = Object.entries(environment).filter(([name]) => isAllowed(name.toUpperCase()));
  return Object.fromEntries(entries.flatMap(([name, value]) => (value === undefined ? [] : [[name, value]])));
}
