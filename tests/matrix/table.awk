# The lines of `suites`, as one table: legs down, suites across, each cell passed/failed/skipped, and what users are told.
/^@leg /     { leg = $2; legs[++rows] = leg }
/^@row /     { if (!($2 in known)) { known[$2] = 1; suites[++columns] = $2 }
               cell[leg, $2] = $3 "/" $4 "/" $5; passed += $3; failed += $4; skipped += $5 }
/^@skip /    { note("skipped", $0) }
/^@refused / { note("refused", $0) }
/^@failed /  { note("FAILED", $0) }
/^@broken /  { failed++; note("FAILED", $0) }
/^@absent /  { sub(/^@absent /, ""); absent[++absents] = $0 }
# The same line of several legs is said once, with their names.
function note(kind, line) {
    sub(/^@[a-z]+ /, "", line); line = kind ": " line
    # Names that are new each time.
    gsub(/airlock-test-[A-Za-z0-9-]+/, "…", line)
    gsub(/\/[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]+ /, "/… ", line)
    gsub(/processes \([0-9, ]+\)/, "processes (…)", line)
    if (!(line in where)) order[++notes] = line
    if (index(where[line] " ", " " leg " ") == 0) where[line] = where[line] " " leg
}
END {
    for (i = 1; i <= rows; i++) if (length(legs[i]) > first) first = length(legs[i])
    printf "%-*s", first, "leg"
    for (c = 1; c <= columns; c++) { width[c] = length(suites[c]) > 8 ? length(suites[c]) : 8; printf "  %*s", width[c], suites[c] }
    printf "\n"
    for (i = 1; i <= rows; i++) {
        printf "%-*s", first, legs[i]
        for (c = 1; c <= columns; c++) printf "  %*s", width[c], ((legs[i], suites[c]) in cell) ? cell[legs[i], suites[c]] : "-"
        printf "\n"
    }
    print "(passed/failed/skipped)"
    for (n = 1; n <= notes; n++) print order[n] " [" substr(where[order[n]], 2) "]"
    for (n = 1; n <= absents; n++) { print "skipped: kernel " absent[n] }
    printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped + absents
    exit failed > 0
}
