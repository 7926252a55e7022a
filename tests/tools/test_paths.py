"""No path leads out of the workspace, whatever links and swaps it goes through; and honest paths work."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.errors import ToolFailed
from actors.tools.paths import MOST_LINKS, Workspace
from actors.tools.whole_files import opened, read_bytes, replace_bytes

OUT = "leads out of the workspace"


@pytest.fixture
def workspace(root: Path) -> Workspace:
    """Two files, and links of every kind to them and out."""
    (root / "sub" / "deep").mkdir(parents=True)
    (root / "sub" / "a.txt").write_text("inside\n")
    (root / "to_file").symlink_to("sub/a.txt")
    (root / "to_directory").symlink_to("sub")
    (root / "absolute_inside").symlink_to(root / "sub")
    (root / "sub" / "deep" / "back").symlink_to("../../to_directory")
    (root / "sub" / "deep" / "absolute_back").symlink_to(root / "sub")
    (root / "to_root").symlink_to(".")
    (root / "nowhere_yet").symlink_to("sub/new.txt")
    (root / "out").symlink_to("../secret")
    (root / "out_absolute").symlink_to("/")
    (root / "sub" / "out_far").symlink_to("../../secret/key.txt")
    (root / "out_by_two").symlink_to("sub/deep/back/../..")
    (root / "loop").symlink_to("loop")
    return Workspace(str(root))


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("sub/a.txt", "sub/a.txt"),
        ("./sub//deep/../a.txt", "sub/a.txt"),
        (".", "."),
        ("sub/..", "."),
        ("to_file", "sub/a.txt"),
        ("to_directory/a.txt", "sub/a.txt"),
        ("absolute_inside/a.txt", "sub/a.txt"),
        ("sub/deep/back/a.txt", "sub/a.txt"),
        ("sub/deep/absolute_back/a.txt", "sub/a.txt"),
        ("to_root/to_root/sub", "sub"),
        ("to_directory/..", "."),
        ("nowhere_yet", "sub/new.txt"),
        ("new/deep/file.txt", "new/deep/file.txt"),
        ("new/../sub/a.txt", "sub/a.txt"),
        ("sub/with\\backslash", "sub/with\\backslash"),
        ("...", "..."),
    ],
)
def test_a_path_that_stays_inside_is_found_without_its_links(workspace, asked, found):
    assert workspace.resolve(asked) == found


def test_an_absolute_path_inside_is_taken_and_made_relative(workspace, root, tmp_path):
    assert workspace.resolve(f"{root}/to_file") == "sub/a.txt"
    assert workspace.resolve(f"{root}") == "."
    (tmp_path / "alias").symlink_to(root)
    named_so = Workspace(str(tmp_path / "alias"))
    assert named_so.resolve(f"{tmp_path}/alias/to_file") == "sub/a.txt"
    assert named_so.resolve(f"{root}/to_file") == "sub/a.txt"


@pytest.mark.parametrize(
    "asked",
    [
        "..",
        "../secret/key.txt",
        "sub/../../secret/key.txt",
        "out/key.txt",
        "out",
        "out_absolute",
        "out_absolute/etc/passwd",
        "sub/out_far",
        "out_by_two",
        "new/../../secret/key.txt",
        "/etc/passwd",
        "//etc/passwd",
        "/",
        "{root}x/a.txt",
        "{root}/../secret/key.txt",
    ],
)
def test_a_path_that_leads_out_is_refused(workspace, root, asked):
    with pytest.raises(ToolFailed, match=OUT):
        workspace.resolve(asked.format(root=root))


def test_the_refusal_tells_nothing_about_what_is_out_there(workspace):
    said = []
    for asked in ("../secret", "../nobody"):
        with pytest.raises(ToolFailed) as refused:
            workspace.resolve(asked)
        said.append(str(refused.value).replace(asked, "it"))
    assert said[0] == said[1]


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ("", "must not be empty"),
        ("a\0b", "control character"),
        ("a\nb", "control character"),
        ("a\x7fb", "control character"),
        ("a\x9bb", "control character"),
        ("a\ud800b", "no file name can have"),
        ("a/" * 3_000, "at most 4096"),
        ("loop", f"more than {MOST_LINKS} links"),
        ("sub/a.txt/b", '"sub/a.txt" is not a directory'),
        ("sub/a.txt/..", '"sub/a.txt" is not a directory'),
        ("x" * 300, "too long"),
    ],
)
def test_a_path_that_cannot_be_one_is_refused_by_name(workspace, asked, why):
    with pytest.raises(ToolFailed, match=why):
        workspace.resolve(asked)


def test_links_that_multiply_come_to_an_end(root):
    (root / "x0").mkdir()
    for place in range(1, 30):
        (root / f"x{place}").symlink_to(f"x{place - 1}/../x{place - 1}")
    with pytest.raises(ToolFailed, match="more than"):
        Workspace(str(root)).resolve("x29")
    assert Workspace(str(root)).resolve("x4") == "x0"


def test_a_link_to_a_name_that_is_no_text_is_refused(root):
    (root / "odd").symlink_to(os.fsdecode(b"caf\xe9"))
    with pytest.raises(ToolFailed, match="no file name can have"):
        Workspace(str(root)).resolve("odd")


def read(workspace: Workspace, relative: str) -> bytes | None:
    with opened(workspace, relative) as descriptor:
        return None if descriptor is None else read_bytes(descriptor, 1_000)


def swapping(root: Path, name: str, target: str) -> Workspace:
    """A workspace in which ``name`` becomes a link between the look and the opening, as soon as it is looked at."""
    done = []

    def between(seen: str) -> None:
        if seen == Path(name).name and not done:
            done.append(seen)
            os.rename(root / name, root / "moved")
            os.symlink(target, root / name)

    return Workspace(str(root), between)


def test_without_a_swap_files_are_opened(workspace):
    assert read(workspace, "sub/a.txt") == b"inside\n"
    with workspace.directory("sub") as descriptor:
        assert sorted(os.listdir(descriptor)) == ["a.txt", "deep", "out_far"]


def test_a_file_that_becomes_a_link_out_before_it_is_opened_is_not_read(workspace, root):
    swapped = swapping(root, "sub/a.txt", "../../secret/key.txt")
    with pytest.raises(ToolFailed):
        read(swapped, "sub/a.txt")
    assert (root / "sub" / "a.txt").read_text() == "canary\n", "the link was in place"


def test_a_directory_that_becomes_a_link_out_before_it_is_entered_is_not_entered(workspace, root):
    (root / "sub" / "key.txt").write_text("inside\n")
    assert read(workspace, "sub/key.txt") == b"inside\n"
    swapped = swapping(root, "sub", "../secret")
    with pytest.raises(ToolFailed, match="not a directory"):
        read(swapped, "sub/key.txt")
    assert (root / "sub" / "key.txt").read_text() == "canary\n", "the link was in place"


def test_a_directory_that_becomes_a_link_out_before_it_is_listed_is_not_listed(workspace, root):
    swapped = swapping(root, "sub", "../secret")
    with pytest.raises(ToolFailed), swapped.directory("sub"):
        pass
    assert os.listdir(root / "sub") == ["key.txt"], "the link was in place"


def test_a_directory_that_becomes_a_link_out_while_a_path_is_resolved_is_not_followed(workspace, root):
    swapped = swapping(root, "sub", "../secret")
    with pytest.raises(ToolFailed):
        swapped.resolve("sub/key.txt")


@pytest.mark.parametrize("target", ["../secret/key.txt", "moved"])
def test_a_file_that_becomes_a_link_before_it_is_replaced_is_not_written_through(root, target):
    (root / "a.txt").write_text("old")
    swapped = swapping(root, "a.txt", target)
    with swapped.parent("a.txt") as (above, name), pytest.raises((ToolFailed, OSError)):
        replace_bytes(above, name, b"new", swapped.between, key="run#1.1")
    assert (root.parent / "secret" / "key.txt").read_text() == "canary\n"
    assert (root / "moved").read_text() == "old"


def test_a_missing_directory_is_not_made_through_a_link(root):
    def between(seen: str) -> None:
        if seen == "new":
            os.rmdir(root / "new")
            os.symlink("../secret", root / "new")

    swapped = Workspace(str(root), between)
    with pytest.raises(ToolFailed), swapped.parent("new/deep/a.txt", create=True):
        pass
    assert os.listdir(root.parent / "secret") == ["key.txt"]


def test_no_descriptor_is_left_open(workspace):
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else pytest.skip("needs /proc")
    for asked in ("sub/a.txt", "/etc/passwd", "out/key.txt", "loop", "sub/a.txt/x", "new/x", "to_root/sub/deep/back"):
        try:
            relative = workspace.resolve(asked)
            read(workspace, relative)
        except ToolFailed:
            continue
    assert len(os.listdir("/proc/self/fd")) == before


PARTS = st.sampled_from(
    [
        "..",
        ".",
        "",
        "sub",
        "deep",
        "a.txt",
        "out",
        "out_absolute",
        "back",
        "to_root",
        "to_file",
        "loop",
        "new",
        "secret",
    ]
)


@given(st.lists(PARTS, min_size=1, max_size=7))
def test_whatever_is_resolved_lies_inside_and_is_what_the_system_finds(tmp_path_factory, parts):
    root = _shared(tmp_path_factory)
    asked = "/".join(parts)
    try:
        found = Workspace(str(root)).resolve(asked)
    except ToolFailed:
        return
    assert os.path.realpath(root / found) == str(root / found).removesuffix("/."), "no link is left in it"
    if (root / asked).exists():
        assert os.path.realpath(root / asked) == os.path.realpath(root / found)


_roots: list[Path] = []


def _shared(factory: pytest.TempPathFactory) -> Path:
    if not _roots:
        top = factory.mktemp("shared")
        root = top / "workspace"
        (root / "sub" / "deep").mkdir(parents=True)
        (top / "secret").mkdir()
        (root / "sub" / "a.txt").write_text("inside\n")
        for name, target in {
            "to_file": "sub/a.txt", "to_root": ".", "out": "../secret", "out_absolute": "/", "loop": "loop",
            "sub/deep/back": "../../sub", "sub/deep/to_root": "../../to_root", "sub/out": "../../secret",
        }.items():  # fmt: skip
            (root / name).symlink_to(target)
        _roots.append(root)
    return _roots[0]
