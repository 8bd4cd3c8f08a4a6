# The lines of `suites`, as one table: legs down, suites across, each cell passed/failed/skipped, and what users are told.
# Of a suite that was run again the later lines count.
/^@leg /     { leg = $2; if (!(leg in all)) legs[++rows] = leg
               all[leg] = ""; for (i = 3; i <= NF; i++) { sub(/:.*/, "", $i); all[leg] = all[leg] " " $i }
               delete broken[leg] }
/^@row /     { suite = $2; if (!(suite in known)) { known[suite] = 1; suites[++columns] = suite }
               cell[leg, suite] = $3 "/" $4 "/" $5; notes[leg, suite] = "" }
/^@skip /    { note("skipped", $0) }
/^@refused / { note("refused", $0) }
/^@measured / { note("measured", $0) }
/^@failed /  { note("FAILED", $0) }
/^@broken /  { broken[leg] = 1 }
/^@absent /  { sub(/^@absent /, ""); absent[++absents] = $0 }
function note(kind, line) {
    sub(/^@[a-z]+ /, "", line); line = kind ": " line
    # Names that are new each time.
    gsub(/airlock-test-[A-Za-z0-9-]+/, "…", line)
    gsub(/\/[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]+ /, "/… ", line)
    gsub(/processes \([0-9, ]+\)/, "processes (…)", line)
    notes[leg, suite] = notes[leg, suite] line "\n"
}
# The same line of several legs is said once, with their names.
function say(leg, line) {
    if (!(line in where)) order[++lines] = line
    if (index(where[line] " ", " " leg " ") == 0) where[line] = where[line] " " leg
}
END {
    for (i = 1; i <= rows; i++) {
        leg = legs[i]
        for (c = 1; c <= columns; c++) if ((leg, suites[c]) in cell) {
            split(cell[leg, suites[c]], count, "/"); passed += count[1]; failed += count[2]; skipped += count[3]
            n = split(notes[leg, suites[c]], line, "\n")
            for (k = 1; k < n; k++) say(leg, line[k])
        }
        n = split(all[leg], name, " ")
        for (k = 1; k <= n; k++) if (leg in broken && !((leg, name[k]) in cell)) {
            failed++; say(leg, "FAILED: the leg ended before " name[k])
        }
    }
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
    for (n = 1; n <= lines; n++) print order[n] " [" substr(where[order[n]], 2) "]"
    for (n = 1; n <= absents; n++) { print "skipped: kernel " absent[n] }
    printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped + absents
    exit failed > 0
}
