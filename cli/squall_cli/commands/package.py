"""`storm package`: make the archive that `storm jar` would upload."""

import os
import tempfile
from pathlib import Path

import click

from squall_cli.options import json_option
from squall_cli.output import print_json


@click.command("package", no_args_is_help=True)
@click.argument("package", metavar="PACKAGE", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File to write (default: NAME.zip in this folder).",
)
@json_option
def command(package: Path, output: Path | None, as_json: bool) -> None:
    """Make the archive of a topology's code without submitting it.

    PACKAGE is a folder, as for `storm jar`; files named in its .stormignore are left out. The same
    files always give the same bytes.
    """
    from squall_common.client.upload import size_text
    from squall_common.errors import PackageError
    from squall_common.packaging.package import build_package, describe_package

    if package.is_file():
        raise PackageError(f"{package} is already a package", hint="pass it to `storm jar`")
    target = output or Path(f"{package.resolve().name or 'package'}.zip")
    try:
        with tempfile.TemporaryDirectory(prefix="squall-package-") as folder:
            archive = build_package(package, Path(folder))
            described = describe_package(archive)
            # Written beside it and renamed: a reader never sees half a file.
            fresh = target.with_name(f".{target.name}.{os.getpid()}")
            try:
                fresh.write_bytes(archive.read_bytes())
                fresh.replace(target)
            finally:
                fresh.unlink(missing_ok=True)
    except OSError as error:
        raise PackageError(f"cannot write {target}: {error.strerror or error}") from error
    if as_json:
        print_json(
            {
                "package": str(target),
                "bytes": described.size_bytes,
                "unpacked_bytes": described.unpacked_bytes,
                "files": described.files,
                "sha256": described.sha256,
            }
        )
        return
    click.echo(
        f"{target}: {described.files} files, {size_text(described.size_bytes)} "
        f"({size_text(described.unpacked_bytes)} unpacked), sha256 {described.sha256}"
    )
