/** Values to offer as completions. An empty list means that the values are unknown. */
export type Values = "files" | "folders" | readonly string[];

/** An option to complete. */
export interface Flag {
  /** Name, with the leading dashes. */
  readonly name: string;
  readonly description: string;
  /** Name of the value, if the option has one. */
  readonly value: string | undefined;
  readonly values: Values;
}

/** A command to complete. */
export interface CommandNode {
  /** Full name, such as `jwksd keys list`. */
  readonly path: string;
  /** Subcommands. */
  readonly commands: readonly { readonly name: string; readonly description: string }[];
  readonly flags: readonly Flag[];
  /** Values for the command's argument. */
  readonly values: Values;
}

/**
 * Functions that generate the completion script, by shell. Each script finds the command in the words before the cursor
 * and completes the next word.
 */
export const scripts = { bash, zsh, fish };

const pathsBelow = (nodes: readonly CommandNode[], quote: string): string[] =>
  nodes.slice(1).map(({ path }) => quote + path + quote);

const bashValues = (values: Values): string => {
  if (values === "files") return "compopt -o default";
  return values === "folders" ? "compopt -o dirnames" : `words="${values.join(" ")}"`;
};

/** Returns the script for Bash 4. It does not need the bash-completion package. */
function bash(nodes: readonly CommandNode[]): string {
  const values = nodes.flatMap(({ path, flags }) =>
    flags.flatMap(({ name, value, values }) =>
      value === undefined ? [] : `    "${path} ${name}") ${bashValues(values)} ;;`,
    ),
  );
  const words = nodes.map(({ path, commands, flags, values }) => {
    const options = `words="${flags.map(({ name }) => name).join(" ")}"`;
    const others = commands.length > 0 ? commands.map(({ name }) => name) : values;
    const choice = others.length === 0 ? options : `[[ $word == -* ]] && ${options} || ${bashValues(others)}`;
    return `        "${path}") ${choice} ;;`;
  });
  return `_jwksd() {
  local word=\${COMP_WORDS[COMP_CWORD]} before=\${COMP_WORDS[COMP_CWORD - 1]} command=jwksd words= i
  # Bash treats the equals sign in --name=value as a word.
  [[ $before == = ]] && before=\${COMP_WORDS[COMP_CWORD - 2]}
  [[ $word == = ]] && word=
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$command \${COMP_WORDS[i]}" in
      ${pathsBelow(nodes, '"').join(" | \\\n      ")})
        command+=" \${COMP_WORDS[i]}" ;;
      *) break ;;
    esac
  done
  case "$command $before" in
${values.join("\n")}
    *)
      case $command in
${words.join("\n")}
      esac ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -F _jwksd jwksd`;
}

const zshQuoted = (text: string): string => `'${text.replaceAll("'", String.raw`'\''`)}'`;
const zshEscaped = (text: string): string => text.replaceAll(/[\\:[\]]/g, String.raw`\$&`);
const zshValues = (values: Values): string => {
  if (values === "files") return "_files";
  return values === "folders" ? "_files -/" : values.length === 0 ? " " : `(${values.join(" ")})`;
};

function zsh(nodes: readonly CommandNode[]): string {
  const rows = nodes.map(({ path, commands, flags, values }) => {
    const names = commands.map(({ name, description }) => zshQuoted(`${name}:${zshEscaped(description)}`));
    const options = flags.map(({ name, description, value, values }) => {
      const after = value === undefined ? "" : `:${zshEscaped(value)}:${zshValues(values)}`;
      // Some options can be repeated.
      return zshQuoted(`*${name}${value === undefined ? "" : "="}[${zshEscaped(description)}]${after}`);
    });
    // If this had a message for unknown values, zsh would insert nothing.
    if (values.length > 0) options.push(zshQuoted(`*: :${zshValues(values)}`));
    return `    '${path}')
      below=(${names.join("\n        ")})
      flags=(${options.join("\n        ")}) ;;`;
  });
  return `#compdef jwksd
_jwksd() {
  local command=jwksd
  local -a paths=(${pathsBelow(nodes, "'").join("\n    ")}) below flags
  while (( CURRENT > 2 && $paths[(Ie)$command $words[2]] )); do
    command+=" $words[2]"
    shift words
    (( CURRENT-- ))
  done
  case $command in
${rows.join("\n")}
  esac
  if (( CURRENT == 2 && $#below > 0 )) && [[ $words[2] != -* ]]; then
    _describe command below
  else
    _arguments $flags
  fi
}
# A file in $fpath is the function itself.
if [[ $funcstack[1] == _jwksd ]]; then _jwksd "$@"; else compdef _jwksd jwksd; fi`;
}

const fishQuoted = (text: string): string => `'${text.replaceAll(/['\\]/g, String.raw`\$&`)}'`;
const fishValues = (values: Values): string => {
  if (values === "files") return " -F";
  if (values === "folders") return " -a '(__fish_complete_directories)'";
  return values.length === 0 ? "" : ` -a '${values.join(" ")}'`;
};

function fish(nodes: readonly CommandNode[]): string {
  const rows = nodes.flatMap(({ path, commands, flags, values }) => {
    const at = `complete -c jwksd -n '__jwksd_at ${path}'`;
    return [
      ...commands.map(({ name, description }) => `${at} -a ${name} -d ${fishQuoted(description)}`),
      ...flags.map(({ name, description, value, values }) => {
        // Without -x, fish also offers files.
        const needs =
          value === undefined
            ? ""
            : `${typeof values === "string" || values.length === 0 ? " -r" : " -x"}${fishValues(values)}`;
        return `${at} -l ${name.slice(2)}${needs} -d ${fishQuoted(description)}`;
      }),
      ...(values.length === 0 ? [] : [`${at}${fishValues(values)}`]),
    ];
  });
  return `set -g __jwksd_paths ${pathsBelow(nodes, "'").join(" \\\n  ")}
function __jwksd_at
  set -l command jwksd
  for word in (commandline -opc)[2..-1]
    contains -- "$command $word" $__jwksd_paths; or break
    set command "$command $word"
  end
  test "$command" = "$argv"
end
complete -c jwksd -f
${rows.join("\n")}`;
}
