//! Control groups: layout, creation, limits, device filter, statistics, kill and removal.
