#!/usr/bin/env bash
# Prints the path of pdflatex, for the tests of what is written for papers; Debian's
# packages of it and of Poppler's tools are installed when they are missing.
set -euo pipefail
complete() { command -v pdffonts >/dev/null && command -v pdftoppm >/dev/null && kpsewhich booktabs.sty >/dev/null 2>&1 && command -v pdflatex; }
complete && exit 0
command -v apt-get >/dev/null || { echo "install_latex: pdflatex with booktabs, pdffonts or pdftoppm is missing and there is no apt-get; install TeX Live and Poppler's tools, or set CCMED_TEST_LATEX to the path of pdflatex" >&2; exit 1; }
echo "install_latex: installing Debian's texlive-latex-recommended and poppler-utils" >&2
root=()
[ "$(id -u)" = 0 ] || root=(sudo)
"${root[@]}" apt-get update -qq >&2
"${root[@]}" apt-get install -y -qq --no-install-recommends texlive-latex-base texlive-latex-recommended poppler-utils >&2
complete
