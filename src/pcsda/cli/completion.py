"""The command `completion`: commands, options and choices as a script for the shell."""

from __future__ import annotations

import re
from argparse import Namespace

from .parser import build
from .printing import show_json

SCRIPT = """\
_pcsda() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} options= choices=
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "{commands}" -- "$word"))
        return
    fi
    case "${{COMP_WORDS[1]}}" in
{options}
    esac
    case "${{COMP_WORDS[1]}} $before" in
{choices}
    esac
    if [ -n "$choices" ]; then
        COMPREPLY=($(compgen -W "$choices" -- "$word"))
    elif [ "${{word#-}}" != "$word" ]; then
        COMPREPLY=($(compgen -W "$options" -- "$word"))
    else
        COMPREPLY=($(compgen -f -- "$word"))
    fi
}}
complete -o filenames -F _pcsda pcsda
"""


def completion(arguments: Namespace) -> None:
    """Print the script."""
    script = make_script()
    if arguments.shell == "zsh":
        script = "autoload -U +X bashcompinit && bashcompinit\n" + script
    if arguments.json:
        show_json({"shell": arguments.shell, "script": script})
    else:
        print(script, end="")


def make_script() -> str:
    """Make the script from the usage of every command."""
    usages = {name: one.format_usage() for name, one in build("").commands.items()}
    options, choices = [], []
    for name, usage in usages.items():
        words = " ".join(dict.fromkeys(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", usage)))
        options.append(f'        {name}) options="{words}" ;;')
        for option, values in re.findall(r"(--[\w-]+)\s+\{([^}]*)\}", usage):
            listed = values.replace(",", " ")
            choices.append(f'        "{name} {option}") choices="{listed}" ;;')
    return SCRIPT.format(
        commands=" ".join(usages), options="\n".join(options), choices="\n".join(choices)
    )
