//! Task directories: format, loader and checks.
