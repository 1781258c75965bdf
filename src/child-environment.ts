/**
 * What most programs need to find their way about, and nobody keeps a secret in. In upper case: Windows writes names as it pleases.
 *
 * @see https://specifications.freedesktop.org/basedir-spec/latest/
 */
const common = `
  PATH HOME USER LOGNAME LANG LANGUAGE LC_* TZ TMPDIR LD_LIBRARY_PATH
  XDG_CONFIG_HOME XDG_DATA_HOME XDG_STATE_HOME XDG_RUNTIME_DIR
  SYSTEMROOT SYSTEMDRIVE WINDIR TEMP TMP USERPROFILE APPDATA LOCALAPPDATA PROGRAMDATA
`;

/**
 * The part of an environment that a child process gets: what any program needs, and what is named. A secret of the parent's is in none
 * of it, unless it is named.
 *
 * @param names of variables, or their beginnings where they end in `*`
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
