/** What a value may be; an empty list where nobody knows. */
export type Values = "files" | "folders" | readonly string[];

/** An option, as shells complete it. */
export interface Flag {
  /** With its dashes. */
  readonly name: string;
  readonly about: string;
  /** The name of its value, if it needs one. */
  readonly value: string | undefined;
  readonly values: Values;
}

/** A command, as shells complete it. */
export interface Place {
  /** The words that lead here: `jwksd keys list`. */
  readonly path: string;
  /** Those below it. */
  readonly commands: readonly { readonly name: string; readonly about: string }[];
  readonly flags: readonly Flag[];
  /** Of its argument. */
  readonly values: Values;
}

/** The script of each shell. Each follows the words to a place, and completes what may stand there. */
export const scripts = { bash, zsh, fish };

const pathsBelow = (places: readonly Place[], quote: string): string[] =>
  places.slice(1).map(({ path }) => quote + path + quote);

const bashValues = (values: Values): string => {
  if (values === "files") return "compopt -o default";
  return values === "folders" ? "compopt -o dirnames" : `words="${values.join(" ")}"`;
};

/** Needs Bash 4, and not the package bash-completion. */
function bash(places: readonly Place[]): string {
  const values = places.flatMap(({ path, flags }) =>
    flags.flatMap(({ name, value, values }) =>
      value === undefined ? [] : `    "${path} ${name}") ${bashValues(values)} ;;`,
    ),
  );
  const words = places.map(({ path, commands, flags, values }) => {
    const options = `words="${flags.map(({ name }) => name).join(" ")}"`;
    const others = commands.length > 0 ? commands.map(({ name }) => name) : values;
    const choice = others.length === 0 ? options : `[[ $word == -* ]] && ${options} || ${bashValues(others)}`;
    return `        "${path}") ${choice} ;;`;
  });
  return `_jwksd() {
  local word=\${COMP_WORDS[COMP_CWORD]} before=\${COMP_WORDS[COMP_CWORD - 1]} command=jwksd words= i
  # Bash makes a word of the equals sign in --name=value.
  [[ $before == = ]] && before=\${COMP_WORDS[COMP_CWORD - 2]}
  [[ $word == = ]] && word=
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$command \${COMP_WORDS[i]}" in
      ${pathsBelow(places, '"').join(" | \\\n      ")})
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

function zsh(places: readonly Place[]): string {
  const rows = places.map(({ path, commands, flags, values }) => {
    const names = commands.map(({ name, about }) => zshQuoted(`${name}:${zshEscaped(about)}`));
    const options = flags.map(({ name, about, value, values }) => {
      const after = value === undefined ? "" : `:${zshEscaped(value)}:${zshValues(values)}`;
      // Several options may be given again.
      return zshQuoted(`*${name}${value === undefined ? "" : "="}[${zshEscaped(about)}]${after}`);
    });
    // With a message for a value that nobody knows, zsh would insert nothing.
    if (values.length > 0) options.push(zshQuoted(`*: :${zshValues(values)}`));
    return `    '${path}')
      below=(${names.join("\n        ")})
      flags=(${options.join("\n        ")}) ;;`;
  });
  return `#compdef jwksd
_jwksd() {
  local command=jwksd
  local -a paths=(${pathsBelow(places, "'").join("\n    ")}) below flags
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
# A file of $fpath is the function itself.
if [[ $funcstack[1] == _jwksd ]]; then _jwksd "$@"; else compdef _jwksd jwksd; fi`;
}

const fishQuoted = (text: string): string => `'${text.replaceAll(/['\\]/g, String.raw`\$&`)}'`;
const fishValues = (values: Values): string => {
  if (values === "files") return " -F";
  if (values === "folders") return " -a '(__fish_complete_directories)'";
  return values.length === 0 ? "" : ` -a '${values.join(" ")}'`;
};

function fish(places: readonly Place[]): string {
  const rows = places.flatMap(({ path, commands, flags, values }) => {
    const at = `complete -c jwksd -n '__jwksd_at ${path}'`;
    return [
      ...commands.map(({ name, about }) => `${at} -a ${name} -d ${fishQuoted(about)}`),
      ...flags.map(({ name, about, value, values }) => {
        // Without -x, fish offers files beside the values.
        const needs =
          value === undefined
            ? ""
            : `${typeof values === "string" || values.length === 0 ? " -r" : " -x"}${fishValues(values)}`;
        return `${at} -l ${name.slice(2)}${needs} -d ${fishQuoted(about)}`;
      }),
      ...(values.length === 0 ? [] : [`${at}${fishValues(values)}`]),
    ];
  });
  return `set -g __jwksd_paths ${pathsBelow(places, "'").join(" \\\n  ")}
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
