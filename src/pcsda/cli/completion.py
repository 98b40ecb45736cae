"""The command `completion`, which prints shell scripts that complete commands and options."""

from __future__ import annotations

from argparse import Action, Namespace
from importlib.resources import files

from .parser import build
from .printing import show_json

# Start zsh's completion unless the user's settings do, and load its support for bash scripts.
ZSH = """(( $+functions[compdef] )) || { autoload -U compinit && compinit -u }
autoload -U +X bashcompinit && bashcompinit
"""


def completion(a: Namespace) -> None:
    """Print the completion script for a shell."""
    script = make_fish() if a.shell == "fish" else make_script()
    if a.shell == "zsh":
        script = ZSH + script
    if a.json:
        show_json({"shell": a.shell, "script": script})
    else:
        print(script, end="")


def make_script() -> str:
    """Make the completion script for bash and zsh from each command's options and choices."""
    commands = build("").commands
    options, choices = [], []
    for name, one in commands.items():
        words = " ".join(flag for action in one.options for flag in action.option_strings)
        options.append(f'        {name}) options="{words}" ;;')
        for action in one.options:
            # The first word after the command may have choices too.
            for before in (action.option_strings or [name]) if action.choices else []:
                choices.append(f'        "{name} {before}") choices="{_choices(action)}" ;;')
    script = files(__package__).joinpath("completion.sh").read_text(encoding="utf-8")
    lines = {"commands": [" ".join(commands)], "options": options, "choices": choices}
    for slot, filling in lines.items():
        script = script.replace(f"@{slot}@", "\n".join(filling))
    return script


def make_fish() -> str:
    """Make the completion script for fish, with commands, options, their help, and choices."""
    lines = ["complete -c pcsda -n __fish_use_subcommand -f"]
    for name, one in build("").commands.items():
        about = (one.description or "").rstrip(".")
        lines.append(f"complete -c pcsda -n __fish_use_subcommand -a {name} -d {_quoted(about)}")
        for action in one.options:
            line = f"complete -c pcsda -n '__fish_seen_subcommand_from {name}'"
            for flag in action.option_strings:
                line += f" -{'l' if flag.startswith('--') else 's'} {flag.lstrip('-')}"
            if action.choices:
                line += f" -{'x' if action.option_strings else 'f'} -a {_quoted(_choices(action))}"
            elif not action.option_strings:
                continue  # a file
            elif action.nargs != 0:
                line += " -r"
            if action.option_strings:
                help = (action.help or "").replace("%(default)s", str(action.default))
                line += f" -d {_quoted(help)}"
            lines.append(line)
    return "\n".join(lines) + "\n"


def _choices(action: Action) -> str:
    return " ".join(map(str, action.choices or ()))


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
