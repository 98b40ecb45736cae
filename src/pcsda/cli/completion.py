"""The command `completion`: shell scripts that complete commands, options and choices."""

from __future__ import annotations

import re
from argparse import Namespace
from importlib.resources import files

from .parser import build
from .printing import show_json


def completion(a: Namespace) -> None:
    """Print the script."""
    script = make_fish() if a.shell == "fish" else make_script()
    if a.shell == "zsh":
        script = "autoload -U +X bashcompinit && bashcompinit\n" + script
    if a.json:
        show_json({"shell": a.shell, "script": script})
    else:
        print(script, end="")


def make_script() -> str:
    """Fill the script in with the usage of every command."""
    usages = {name: one.format_usage() for name, one in build("").commands.items()}
    options, choices = [], []
    for name, usage in usages.items():
        words = " ".join(dict.fromkeys(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", usage)))
        options.append(f'        {name}) options="{words}" ;;')
        for option, values in re.findall(r"(--[\w-]+)\s+\{([^}]*)\}", usage):
            listed = values.replace(",", " ")
            choices.append(f'        "{name} {option}") choices="{listed}" ;;')
    script = files(__package__).joinpath("completion.sh").read_text(encoding="utf-8")
    lines = {"commands": [" ".join(usages)], "options": options, "choices": choices}
    for slot, filling in lines.items():
        script = script.replace(f"@{slot}@", "\n".join(filling))
    return script


def make_fish() -> str:
    """Complete commands, options with their help, and choices in fish."""
    lines = ["complete -c pcsda -n __fish_use_subcommand -f"]
    for name, one in build("").commands.items():
        about = (one.description or "").rstrip(".")
        lines.append(f"complete -c pcsda -n __fish_use_subcommand -a {name} -d {_quoted(about)}")
        for action in one.options:
            flags = "".join(
                f" -{'l' if flag.startswith('--') else 's'} {flag.lstrip('-')}"
                for flag in action.option_strings
            )
            help = (action.help or "").replace("%(default)s", str(action.default))
            if flags:
                line = f"complete -c pcsda -n '__fish_seen_subcommand_from {name}'{flags}"
                if action.choices:
                    line += f" -x -a {_quoted(' '.join(map(str, action.choices)))}"
                elif action.nargs != 0:
                    line += " -r"
                lines.append(f"{line} -d {_quoted(help)}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
