"""Names of programs that run others or any code, by what they do with it. Pure; only lists.

`risky_programs.py` says what each list means. None of them is complete, and none
can be: what a program does that stands here nowhere is bound by the sandbox. A
name stands as `program_name` gives it: in small letters, without a version.
"""

from typing import Final


def _names(words: str) -> tuple[str, ...]:
    return tuple(words.split())


# Shells: they run what a line, a file or their input says.
SHELLS: Final = _names(
    """
    sh bash rbash dash ash ksh mksh zsh fish csh tcsh yash hush rksh lksh pdksh rzsh posh sash elvish nu xonsh
    osh ysh rc es bashbug
    """
)
# What runs code of a language that is not read here.
LANGUAGES: Final = _names(
    """
    python pythonw pypy ipython perl ruby irb node nodejs deno bun php lua luajit tclsh wish expect osascript
    pwsh powershell cmd rscript r julia guile scheme racket sbcl clisp ghci runghc erl escript elixir iex groovy
    scala java jshell kotlin swift ocaml dart awk gawk mawk nawk original-awk dc gdb lldb m4 sqlite psql mysql
    mariadb mongo mongosh duckdb jython micropython bpython ptpython ts-node tsx qjs gjs jrunscript jdb gnuplot
    octave maxima matlab wolframscript runhaskell ghc zig nim crystal clojure clj lein bb janet fennel gosh csi
    ecl swipl gforth rexx pike lli pdb pydoc perldoc perlbug cpan cpanm prove plackup erb tex latex pdftex
    pdflatex lualatex luatex xelatex xetex latexmk gs gdbtui gdb-add-index jexec
    """
)
# Compilers and linkers, and how those of their options begin that load code or name a program.
COMPILERS: Final = _names("gcc g++ cc c++ c89 c99 clang clang++ cpp gfortran gdc tcc ld gold lld")
COMPILERS_TOLD: Final = _names(
    """
    -wrapper -fplugin -B -specs --specs -plugin --plugin -Wl,-plugin -Wl,--plugin -Wl,@ -Xlinker -Xclang
    -fpass-plugin -load -fuse-ld -ld-path --ld-path @
    """
)
# What runs what files of a project say.
BUILDERS: Final = _names(
    """
    make gmake bmake ninja meson cmake scons rake just task npx bunx uvx tox nox ant mvn gradle sbt bazel invoke
    fab ansible ansible-playbook vagrant gulp grunt watchexec entr inotifywait cargo go bundle composer dotnet
    mix stack cabal pip pipx uv poetry hatch pdm conda pre-commit gem apt apt-get dpkg rpm yum dnf brew apk
    pacman snap remake samu waf xmake autoreconf libtool ctest cpack act dagger terraform tofu packer pulumi
    helm nix nix-shell nix-build nix-env guix direnv asdf mise rbenv pyenv nodenv rustup foreman honcho overmind
    supervisord dotenv pipenv rye mamba micromamba opam dune rebar xcodebuild xcrun fastlane flutter msbuild
    corepack lerna nx turbo rush hyperfine hg svn jj gh glab dpkg-buildpackage debuild rpmbuild logrotate
    openssl javac nvcc nodemon concurrently pixi
    """
)
# Of these, those whose arguments are targets.
MAKES: Final = _names("make gmake bmake remake xmake ninja samu")
# What loads code of a project. A rule that names one of them means just that; one for everything does not.
RUNNERS: Final = _names(
    """
    pytest py.test nosetests coverage mypy pylint flake sphinx-build mkdocs jest mocha vitest karma ava cypress
    playwright eslint webpack rollup vite rspec cucumber thor rails rubocop phpunit pest django-admin flask
    gunicorn uvicorn celery scrapy jupyter streamlit ldd groff nroff troff
    """
)
# What runs scripts of a project by their names.
PACKAGERS: Final = _names("npm yarn pnpm")
# What runs programs on other machines, or in other systems.
REMOTE: Final = _names(
    """
    ssh scp sftp mosh rsh docker podman nerdctl kubectl telnet autossh pdsh ssh-copy-id git-shell git-upload-pack
    git-receive-pack git-upload-archive
    """
)
# Of builders, those that run the command which is written behind their own words.
TAKES_COMMAND: Final = _names(
    """
    npx bunx uvx uv poetry hatch pdm pipenv rye conda mamba micromamba bundle dotenv direnv mise asdf rbenv pyenv
    nodenv entr watchexec hyperfine nix nix-shell xcrun nodemon concurrently pixi
    """
)
# What runs programs later, or under other rights.
ELSEWHERE: Final = _names(
    """
    nsenter unshare bwrap firejail systemd-run systemctl
    machinectl at batch crontab su runuser pkexec screen tmux script watch parallel flock socat nc ncat netcat
    ld-linux-x86-64.so ld.so qemu wine chpst setpriv capsh run-parts start-stop-daemon daemon dbus-launch
    xvfb-run ld-linux ld-musl xdg-open open ssh-agent ssh-add ssh-keygen sshpass
    gpg-agent systemd-inhibit systemd-cat systemd-nspawn systemd-socket-activate systemd-mount run0 newgrp sg
    sudoedit proot fakechroot numactl cgexec cpulimit schedtool perf valgrind rr gdbserver heaptrack memusage
    sotruss uftrace bpftrace pee mispipe lckdo zrun envdir softlimit setuidgid tcpserver execlineb tini
    dumb-init logsave fstab-decode rlwrap asciinema ttyrec xterm dtach abduco byobu zellij luit switch_root runc
    crun lxc-attach lxc-execute ip tcpdump nmap msgexec msgfilter pg_virtualenv pg_ctl service invoke-rc.d
    agetty rtcwake anacron incrond busctl gdbus dbus-send debconf scalar emacsclient
    """
)
# What lets whoever uses it run other programs.
EDITORS: Final = _names(
    """
    vi vim nvim view ex ed emacs nano pico less more man pager most info mutt ftp lftp mail mailx vimdiff gvim
    rvim rview vimtutor editor sensible-editor red sensible-pager select-editor vipw vigr visudo zless zmore
    bzless bzmore xzless xzmore lzless lzmore lesspipe lessfile cscope tig gitk ranger mc nnn joe micro helix hx
    kak
    """
)
