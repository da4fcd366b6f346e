#!/bin/sh
# Writes graphs as programs of Debian 12 write them (python3-pandas python3-networkx python3-igraph r-cran-igraph sqlite3)
# into the directory that is given, or beside this script.
set -eu
rm -f "${1:-$(dirname "$0")}/pandas.csv.zst"
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here}
/usr/bin/python3 -W ignore "$here/make.py" "$out"
Rscript "$here/make.R" "$out"
cd "$out"
for mode in csv tabs list json line quote insert column markdown box html ascii; do
  sqlite3 -cmd "create table e(src, dst, weight); insert into e values(0,5,0.5),(5,7,2),(12,0,1)" -cmd ".headers on" -cmd ".mode $mode" :memory: "select * from e" >"sqlite3-$mode.$(case $mode in csv) echo csv;; json) echo jsonl;; *) echo txt;; esac)"
done
sqlite3 -csv :memory: "select 0,5 union all select 5,7 union all select 12,0" >sqlite3-csv-noheader.csv
sqlite3 -csv -header :memory: "select 'Doe, J' src, 'two
lines' dst, null weight" >sqlite3-null.csv
sqlite3 -column -header :memory: "select 0 src, 5 dst union all select 5,7" >sqlite3-column-ids.txt
sqlite3 -markdown -header :memory: "select 0 src, 5 dst union all select 5,7" >sqlite3-markdown-ids.txt
zstd -q pandas.csv -o pandas.csv.zst
