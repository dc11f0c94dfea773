"""`storm completion`: completion of commands, options and topologies in a shell."""

import click


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the script that completes storm's command line in a shell.

    It completes commands, options, and the names of topologies, which it asks Nimbus for.

    \b
    bash: add to ~/.bashrc:  eval "$(storm completion bash)"
    zsh:  add to ~/.zshrc:   eval "$(storm completion zsh)"
    fish: storm completion fish > ~/.config/fish/completions/storm.fish
    """
    from click.shell_completion import get_completion_class

    from squall_cli.main import storm

    kind = get_completion_class(shell)
    assert kind is not None, f"click knows {shell}"
    click.echo(kind(storm, {}, "storm", "_STORM_COMPLETE").source())
