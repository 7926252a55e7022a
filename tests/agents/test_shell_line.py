"""The language of `shell`: what is accepted means to /bin/sh what it means here; what is not is refused where it stands."""

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.agents.shell_line import (
    MOST_CHARACTERS,
    MOST_COMMANDS,
    Command,
    Join,
    LineRefused,
    Pipeline,
    Redirect,
    Stream,
    read_line,
)


def argvs(text: str) -> list[list[str]]:
    return [list(command.argv) for command in read_line(text).commands]


def test_a_line_is_read_into_pipelines_commands_and_redirections():
    line = read_line("git log --oneline | head -3 > 'last 3.txt' 2>&1 && a < in >> out || b 2> err; c;")
    assert line.pipelines == (
        Pipeline(
            Join.then,
            (
                Command(("git", "log", "--oneline")),
                Command(
                    ("head", "-3"), (Redirect(Stream.write, "last 3.txt"), Redirect(Stream.errors_to_output))
                ),
            ),
        ),
        Pipeline(
            Join.if_passed, (Command(("a",), (Redirect(Stream.read, "in"), Redirect(Stream.append, "out"))),)
        ),
        Pipeline(Join.if_failed, (Command(("b",), (Redirect(Stream.errors, "err"),)),)),
        Pipeline(Join.then, (Command(("c",)),)),
    )


@pytest.mark.parametrize(
    ("text", "argv"),
    [
        ("a  b\tc ", ["a", "b", "c"]),
        ("a 'b  c' \"d'e\" 'f\"g'", ["a", "b  c", "d'e", 'f"g']),
        ("a '' \"\"", ["a", "", ""]),
        ("a x'y'\"z\"w", ["a", "xyzw"]),
        ("a '$(id)' '`id`' '*' ';' '&&' '\\' '~'", ["a", "$(id)", "`id`", "*", ";", "&&", "\\", "~"]),
        ("find . -name '*.py' -exec cat {} ';'", ["find", ".", "-name", "*.py", "-exec", "cat", "{}", ";"]),
        ("a --x=1,2:3@4%5+6^7_8-9./", ["a", "--x=1,2:3@4%5+6^7_8-9./"]),
        ("printf '%s' 'Ä 漢'", ["printf", "%s", "Ä 漢"]),
    ],
)
def test_words_are_taken_as_they_stand(text, argv):
    assert argvs(text) == [argv]


REFUSED = [
    ("a; $(id)", 4, "substitution"),
    ("git status $(id)", 12, "substitution"),
    ('git status "$(id)"', 13, "single quotes"),
    ("git status `id`", 12, "backtick"),
    ('git status "`id`"', 13, "single quotes"),
    ("git status $HOME", 12, "variable"),
    ("git status ${IFS}id", 12, "variable"),
    ("git status $'\\n'", 12, "variable"),
    ("git status <(id)", 13, "substitution"),
    ("git status >(id)", 13, "only a file"),
    ("git status &", 12, "shell_start"),
    ("git status & id", 12, "shell_start"),
    ("git status |& id", 13, "2>&1 |"),
    ("git status\nid", 11, "&& or ;"),
    ("git status\rid", 11, "&& or ;"),
    ("git status '\n'", 13, "&& or ;"),
    ("git status \x00", 12, "NUL"),
    ("git status \x1b[2J", 12, "U+001B"),
    ("git status '\u202e'", 13, "U+202E"),
    ("git status '\u200b'", 13, "U+200B"),
    # Letters to Python, and nothing or a blank to whoever approves the line.
    ("git status '\u2800'", 13, "U+2800"),
    ("git status '\u3164'", 13, "U+3164"),
    ('git status "a\U000e0141"', 14, "U+E0141"),
    ("git status \uffa0id", 12, "U+FFA0"),
    ("git status \u00a0id", 12, "U+00A0"),
    ("a '\ud800'", 4, "U+D800"),
    ("ls *.py", 4, "pattern"),
    ("ls a?c", 5, "pattern"),
    ("ls [ab]", 4, "pattern"),
    ("ls ~/x", 4, "directory"),
    ("ls {a,b}", 4, "braces"),
    ("ls }", 4, "braces"),
    ("ls a\\ b", 5, "backslash"),
    ("ls \\$x", 4, "backslash"),
    ('ls "a\\"b"', 6, "single quotes"),
    ('ls "!x"', 5, "single quotes"),
    ("ls # more", 4, "comment"),
    ("! ls", 1, "quotes"),
    ("(ls)", 1, "parentheses"),
    ("f() ls", 2, "parentheses"),
    ("ls 'a", 4, "never closed"),
    ('ls "a', 4, "never closed"),
    ("cat <<EOF", 6, "a file"),
    ("cat <<<x", 6, "a file"),
    ("cat <&3", 6, "a file"),
    ("cat <>f", 6, "a file"),
    ("ls >&2", 5, "only a file"),
    ("ls >|f", 5, "only a file"),
    ("ls &>f", 4, "shell_start"),
    ("ls 2>>f", 6, "appended"),
    ("ls 3>f", 4, "number"),
    ("ls 1>f", 4, "number"),
    ("ls 12<f", 4, "number"),
    ("ls 2>&12", 4, "alone"),
    ("ls 2>&1>f", 4, "alone"),
    ("ls 2>&-", 6, "only a file"),
    ("ls >", 5, "a file must follow"),
    ("ls > ; id", 6, "a file must follow"),
    ("ls > ''", 6, "a file must follow"),
    ("> f", 1, "needs a program"),
    ("ls; > f", 5, "needs a program"),
    ("", 1, "missing"),
    ("   ", 4, "missing"),
    (";", 1, "missing"),
    ("ls ;; id", 5, "missing"),
    ("ls | | id", 6, "missing"),
    ("ls &&", 6, "missing"),
    ("&& ls", 1, "missing"),
    ("ls | ; id", 6, "missing"),
    ("'' a", 1, "empty"),
    ("X=1 ls", 1, "env"),
    ("PATH+=x ls", 1, "env"),
    ("a && LD_PRELOAD=x ls", 6, "env"),
    ("> f X=1 ls", 5, "env"),
    ("cd sub && ls", 1, "from there"),
    ("a; export X", 4, "belongs to a shell"),
    ("eval id", 1, "belongs to a shell"),
    ("exec id", 1, "the program itself"),
    (". ./x", 1, "belongs to a shell"),
    ("source x", 1, "belongs to a shell"),
    ("if true", 1, "language"),
    ("while true", 1, "language"),
    ("time ls", 1, "the program itself"),
    ("漢 a", 1, "single quotes"),
]


@pytest.mark.parametrize(("text", "position", "remedy"), REFUSED)
def test_what_is_not_of_the_language_is_refused_where_it_stands_with_a_remedy(text, position, remedy):
    with pytest.raises(LineRefused, match="line refused at character") as refused:
        read_line(text)
    assert refused.value.position == position
    assert remedy in refused.value.why
    assert "\n" not in str(refused.value)


def test_the_corpus_of_refusals_would_run_in_a_shell_or_pass_a_naive_splitter():
    # The control: without this lexer a prefix matcher sees nothing but `git status`.
    attacks = [text for text, *_ in REFUSED if text.startswith("git status ")]
    assert len(attacks) >= 10 and all(text.startswith("git status") for text in attacks)
    done = subprocess.run(["sh", "-c", 'echo "$(echo ran)"'], capture_output=True, text=True, check=True)
    assert done.stdout == "ran\n"


def test_length_and_number_of_commands_are_bounded():
    assert len(argvs("a;" * (MOST_COMMANDS - 1) + "a")) == MOST_COMMANDS
    with pytest.raises(LineRefused, match=f"more than {MOST_COMMANDS} commands"):
        read_line("a|" * MOST_COMMANDS + "a")
    assert argvs("a " + "b" * (MOST_CHARACTERS - 2))
    with pytest.raises(LineRefused, match=f"at most {MOST_CHARACTERS}"):
        read_line("a " + "b" * (MOST_CHARACTERS - 1))


# ── against the shell ───────────────────────────────────────────────────────

LETTERS = "ab12 \t'\"\\|&;<>$`*?[]{}()~#!=-.,:/%+^@\n{}é"
TEXTS = st.text(alphabet=LETTERS, max_size=24)
# Mostly sound pieces, so that many lines are accepted.
PIECES = st.lists(
    st.sampled_from([
        "p", "q", " ", " ", "  ", "\t", "'a b'", '"a b"', "''", '""', "'$x'", "'*'", "{}", "a=b", "-x", "2", "1", "2>", ">",
        ">>", "<", "f", "g", "2>&1", "|", "&&", "||", ";", "&", "'", '"', "\\", "$x", "~", "#", "!", "é", "x,y", "'é'", "=", "%1",
    ]),
    max_size=14,
).map("".join)  # fmt: skip


@given(st.one_of(TEXTS, PIECES))
@settings(max_examples=600, deadline=None)
def test_words_without_an_operator_are_split_as_shlex_splits_them(text):
    try:
        line = read_line(text)
    except LineRefused:
        return
    if len(line.pipelines) == 1 and len(line.pipelines[0].commands) == 1:
        command = line.pipelines[0].commands[0]
        if not command.redirects and ";" not in text:
            assert list(command.argv) == shlex.split(text)


WORDS = st.lists(
    st.sampled_from(["a", "2", "'a b'", '"a b"', "''", "'$x'", "'*;'", "{}", "a=b", "-x", "x,y", "'é'", "=", "%1", "a#", "q"]),
    min_size=1,
    max_size=3,
).map("".join)
REDIRECTS = st.sampled_from([">f", "> f", ">>g", ">> 'g h'", "<f", "< -x", "2>f", "2> e", "2>&1", ">2", ">>1", ">f 2>&1", "2>&1 >f"])
ARGUMENTS = st.lists(st.one_of(WORDS, REDIRECTS), max_size=4).flatmap(
    # Sometimes without a blank between, which is where splitters differ.
    lambda parts: st.sampled_from([" ", "  ", "\t", ""]).map(lambda between: between.join(parts))
)
COMMANDS = st.tuples(st.sampled_from(["p ", "q ", "p", "q\t", "'p' ", '"q" ', ">f p "]), ARGUMENTS).map("".join)
LINES = st.lists(
    st.tuples(COMMANDS, st.sampled_from([";", " ; ", "&&", " && ", "||", " || ", "|", " | ", " 2>&1|"])).map("".join), max_size=5
).flatmap(lambda parts: COMMANDS.map(lambda last: "".join(parts) + last))


# Each command of the line is a function that writes down its arguments and where its output goes.
SHELLS = [shell for shell in ("sh", "bash") if shutil.which(shell)]
PROLOGUE = """
say() { all="<$name>"; for each in "$@"; do all="$all[$each]"; done; printf '%s\\n' "$all" >&9; }
p() { name=p; say "$@"; return 0; }
q() { name=q; say "$@"; return 1; }
"""


@given(LINES)
@settings(max_examples=300, deadline=None)
def test_an_accepted_line_means_the_same_to_the_shell(tmp_path_factory, text):
    try:
        line = read_line(text)
    except LineRefused:
        return
    known = [command for command in line.commands if command.argv[0] in ("p", "q")]
    if len(known) < len(list(line.commands)):
        return
    # Targets must be files that can be opened.
    targets = [redirect.target for command in known for redirect in command.redirects if redirect.target]
    assert all("/" not in target for target in targets)
    for shell in SHELLS:
        folder: Path = tmp_path_factory.mktemp("line")
        _means_the_same(shell, line, text, targets, folder)


def _means_the_same(shell, line, text, targets, folder):
    inside = folder / "in"
    inside.mkdir()
    for target in targets:
        (inside / target).touch()
    log = folder / "log..of..calls"
    script = f"exec 9>'{log}'\n{PROLOGUE}\n{text}\n"
    done = subprocess.run([shell, "-c", script], cwd=inside, capture_output=True, text=True, timeout=20)
    assert "rror" not in done.stderr, done.stderr
    expected = sorted(_logged(line))
    assert sorted(log.read_text().splitlines()) == expected
    # And nothing was made that no redirection names.
    assert {path.name for path in inside.iterdir()} == set(targets)


def _logged(line):
    code = 0
    for pipeline in line.pipelines:
        if pipeline.join is Join.then or (code == 0) == (pipeline.join is Join.if_passed):
            for command in pipeline.commands:
                name, *rest = command.argv
                yield f"<{name}>" + "".join(f"[{word}]" for word in rest)
            code = 0 if pipeline.commands[-1].argv[0] == "p" else 1
