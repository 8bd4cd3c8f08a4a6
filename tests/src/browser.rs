//! Debian's chromium, headless.

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// The scheme that the browser prefers, as Blink counts them.
#[derive(Clone, Copy, Debug)]
pub enum Scheme {
    /// Light text.
    Dark = 0,
    /// Dark text.
    Light = 1,
}

/// The browser, if it is here.
pub fn browser() -> Option<Command> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join("chromium")).find(|file| file.exists()).map(|file| {
        let mut command = Command::new("timeout");
        command.args(["-k", "5", "90"]).arg(file);
        command
    })
}

/// A page in a directory of its own.
pub fn save(page: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("page.html"), page).unwrap();
    fs::write(dir.path().join("measure.html"), include_str!("../tests/report/measure.html")).unwrap();
    dir
}

/// Opens a file of a directory of [`save`]. The console's messages are on standard error.
pub fn open(mut browser: Command, dir: &TempDir, file: &str, scheme: Scheme, options: &[&str]) -> Output {
    let output = browser
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"])
        .args(["--no-first-run", "--disable-background-networking", "--enable-logging=stderr"])
        .args(["--allow-file-access-from-files", "--force-device-scale-factor=1"])
        .arg(format!("--blink-settings=preferredColorScheme={}", scheme as u8))
        .arg(format!("--user-data-dir={}", dir.path().join("profile").display()))
        .args(options)
        .arg(format!("file://{}", dir.path().join(file).display()))
        .output()
        .expect("timeout(1)");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

/// What the browser complains of, and what the page measures in each of the widths.
pub fn measure(browser: Command, page: &str, scheme: Scheme) -> (Vec<String>, Vec<Value>) {
    let dir = save(page);
    let output = open(browser, &dir, "measure.html", scheme, &["--dump-dom"]);
    let (dom, messages) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
    let begin = "<pre id=\"measured\">";
    let json = &dom[dom.find(begin).expect(&dom) + begin.len()..];
    let measured = serde_json::from_str(&json[..json.find("</pre>").unwrap()]).expect(&dom);
    (messages.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect(), measured)
}
