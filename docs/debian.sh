#!/bin/sh
# From Debian's list of packages to predictions by name: which section is a package of, by what it depends on and its description?
set -eu
test -n "$(apt-cache dumpavail 2>/dev/null | head -c 1)" || { echo "skipped: apt-cache lists no packages here"; exit 0; }
apt-cache dumpavail | awk '
  /^Package: / { p = $2; new = !(p in at); at[p] = 1; section[p] = section[p] "" }
  /^(Pre-)?Depends: / && new { sub(/^[^:]*: /, ""); n = split($0, d, /, */); for (i = 1; i <= n; i++) { sub(/[ :].*/, "", d[i]); from[++edges] = p; to[edges] = d[i] } }
  /^Description: / && new { sub(/^[^:]*: /, ""); gsub(/"/, ""); words[p] = $0 }
  /^Section: / && new { section[p] = $2 }
  END { print "id,label,words" >"packages.csv"; for (p in at) printf "%s,%s,\"%s\"\n", p, section[p], words[p] >"packages.csv"
        print "src,dst" >"depends.csv"; for (i = 1; i <= edges; i++) if (to[i] in at) print from[i] "," to[i] >"depends.csv" }'
gnnactor import --edges depends.csv --nodes packages.csv --feature words:text --split random:60/20/20 --undirected debian
gnnactor train --data debian --epochs 2 --save sections.safetensors
gnnactor predict --data debian --params sections.safetensors --ids bash,vim,python3-numpy,gcc,nginx
