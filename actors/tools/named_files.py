"""The files that a check names, and which of them lie outside the workspace, so that it could never be made."""

import os

from actors.agents.verification import EachCompiles, Verification, WorkspaceFileContains
from actors.errors import ToolFailed
from actors.tools.paths import Workspace

# Keys and texts.
Places = tuple[tuple[str, str], ...]


def named_files(criterion: Verification) -> Places:
    """Give the files of the workspace that a check names, with their keys."""
    if isinstance(criterion, WorkspaceFileContains):
        return (("verify.file", criterion.file),)
    if isinstance(criterion, EachCompiles):
        return tuple((f"verify.files[{place}]", file) for place, file in enumerate(criterion.files))
    return ()


def files_outside(criterion: Verification, root: str) -> Places:
    """Find files that a check names outside the workspace. What only a link leads there may be mended yet."""
    named = named_files(criterion)
    return tuple((key, why) for key, file in named if _goes_out(root, file) and (why := unresolved(root, file)))


def unresolved(root: str, file: str) -> str:
    """Say why a path means no file of the workspace; nothing when it means one."""
    try:
        Workspace(root).resolve(file)
    except ToolFailed as error:
        return str(error)
    return ""


def _goes_out(root: str, file: str) -> bool:
    """Tell whether a path goes above the workspace by its own parts, whatever is a link on its way."""
    path = os.path.normpath(os.path.join(os.path.abspath(root), file))
    bases = (os.path.abspath(root), os.path.realpath(root))
    return all(not f"{path}/".startswith(f"{base.rstrip('/')}/") for base in bases)
