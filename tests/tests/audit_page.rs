//! What `airlock audit` writes for other programs and for people: SARIF, and the page.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use airlock_tests::browser::{Scheme, browser, measure, open, save};
use airlock_tests::{Site, schema, skip};
use serde_json::{Value, json};

/// A bundle without protections and with names that would be markup.
fn weak(site: &Site) -> PathBuf {
    let bundle = site.folder("weak");
    let hostile = "/<script>document.title='owned'</script> \u{202e}%C3 \u{fc}";
    let mount = json!({ "destination": hostile, "source": "/srv/a", "type": "bind", "options": ["rbind"] });
    let process = json!({ "user": { "uid": 0, "gid": 0 }, "cwd": "/", "env": ["HF_TOKEN=<img src=x>"] });
    let document = json!({ "ociVersion": "1.0.2", "process": process, "mounts": [mount] });
    fs::write(bundle.join("config.json"), format!("{document:#}")).unwrap();
    bundle
}

/// The format's published schema, which a package of the registry carries: the project does not.
fn published() -> Option<Value> {
    const PACKAGE: &str = "serde-sarif-0.8.0/src/schema.json";
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))?;
    let look = || {
        let registries = fs::read_dir(home.join("registry/src")).ok()?.flatten();
        registries.map(|registry| registry.path().join(PACKAGE)).find(|file| file.exists())
    };
    let fetch = || {
        let dir = tempfile::tempdir().unwrap();
        let manifest = dir.path().join("Cargo.toml");
        fs::create_dir(dir.path().join("src")).unwrap();
        fs::write(dir.path().join("src/lib.rs"), "").unwrap();
        let package = "[package]\nname = \"x\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n";
        let text = format!("{package}[dependencies]\nserde-sarif = \"=0.8.0\"\n");
        fs::write(&manifest, text).unwrap();
        let mut cargo = Command::new("timeout");
        cargo.args(["-k", "5", "60", "cargo", "fetch", "--quiet", "--manifest-path"]).arg(manifest);
        let _ = cargo.output();
    };
    let file = look().or_else(|| {
        fetch();
        look()
    });
    let text = fs::read_to_string(file?).unwrap();
    let schema: Value = serde_json::from_str(&text).unwrap();
    assert!(schema["$id"].as_str().unwrap().ends_with("sarif-schema-2.1.0.json"));
    Some(schema)
}

#[test]
fn sarif_fits_the_published_schema() {
    let site = Site::new();
    let (weak, file) = (weak(&site), site.path("log.sarif"));
    let words = ["audit", "base", weak.to_str().unwrap(), "--sarif", file.to_str().unwrap()];
    let text = site.airlock_with(words);
    assert_eq!((text.code, text.stdout.is_empty()), (1, false), "{text}");
    let log: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let printed =
        site.airlock_with(["audit", "base", weak.to_str().unwrap(), "--sarif", "-", "--fail-on", "never"]);
    assert_eq!(printed.code, 0, "{printed}");
    assert_eq!(serde_json::from_str::<Value>(&printed.stdout).unwrap(), log);

    let run = &log["runs"][0];
    let rules = run["tool"]["driver"]["rules"].as_array().unwrap();
    let results = run["results"].as_array().unwrap();
    assert!(results.len() > 20, "{log:#}");
    for result in results {
        let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
        assert_eq!(rules[index]["id"], result["ruleId"]);
        // Section 3.27.9: what is no failure has no level.
        assert_eq!(result["kind"] == "fail", result["level"] != "none", "{result}");
    }
    let found = |id: &str| results.iter().find(|result| result["ruleId"] == id).unwrap();
    let place = &found("AL051")["locations"][0]["physicalLocation"];
    let text = fs::read_to_string(weak.join("config.json")).unwrap();
    let line = usize::try_from(place["region"]["startLine"].as_u64().unwrap()).unwrap();
    assert!(text.lines().nth(line - 1).unwrap().contains("HF_TOKEN"), "{place}");
    assert_eq!(
        found("AL102")["locations"][0]["physicalLocation"]["artifactLocation"]["uri"],
        "airlock:built-in/base"
    );

    let Some(published) = published() else { skip!("the published schema of SARIF cannot be had") };
    schema::check(&published, &log).unwrap();
    // It would see a log that is none.
    let mut wrong = log.clone();
    wrong["runs"][0]["results"][0]["level"] = "high".into();
    schema::check(&published, &wrong).unwrap_err();
    let mut wrong = log;
    wrong["runs"][0]["results"][0].as_object_mut().unwrap().remove("message");
    schema::check(&published, &wrong).unwrap_err();
}

/// The page that an audit with these words writes.
fn page(site: &Site, words: &[&str]) -> String {
    let file = site.path("page.html");
    let file = file.to_str().unwrap();
    site.audit(words.iter().copied().chain(["--html", file]));
    fs::read_to_string(file).unwrap()
}

/// It fits, in light and dark, says nothing on the console, and loads nothing.
fn fits(page: &str) -> Option<String> {
    for scheme in [Scheme::Light, Scheme::Dark] {
        let (messages, measured) = measure(browser()?, page, scheme);
        assert_eq!(messages, [""; 0]);
        for (found, width) in measured.iter().zip([320, 360, 1440]) {
            assert_eq!(
                [&found["width"], &found["closed"], &found["open"]],
                [width; 3],
                "it scrolls sideways"
            );
            assert_eq!([&found["scripts"], &found["images"]], [0; 2]);
            assert_eq!([&found["captions"], &found["scrolling"], &found["shaded"]], [&found["tables"]; 3]);
            assert_eq!(found["titles"], found["pictures"]);
            assert_eq!(found["dark"], matches!(scheme, Scheme::Dark));
            assert!(found["title"].as_str().unwrap().starts_with("Audit: "), "{}", found["title"]);
        }
    }
    let (_, measured) = measure(browser()?, page, Scheme::Light);
    Some(measured[2]["text"].as_str().unwrap().to_owned())
}

/// Pictures for people, in the build directory.
fn pictures(page: &str, what: &str) {
    for (width, height) in [(390, 3200), (1440, 3200)] {
        let pictures = [("light", Scheme::Light), ("dark", Scheme::Dark)].map(|(name, scheme)| {
            let dir = save(page);
            let file =
                Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("audit-{what}-{width}-{name}.png"));
            let options =
                [format!("--screenshot={}", file.display()), format!("--window-size={width},{height}")];
            open(browser().unwrap(), &dir, "page.html", scheme, &options.each_ref().map(String::as_str));
            fs::read(file).unwrap()
        });
        assert_ne!(pictures[0], pictures[1]);
    }
}

#[test]
fn the_page_of_findings() {
    let site = Site::new();
    let weak = weak(&site);
    let page = page(&site, &[weak.to_str().unwrap(), "base"]);
    let Some(text) = fits(&page) else { skip!("no chromium here") };
    assert!(text.contains("AL060") && text.contains("config.json:") && text.contains("HF_TOKEN"), "{text}");
    assert!(text.contains("/<script>document.title='owned'</script> \\u{202e}%C3"), "{text}");
    pictures(&page, "findings");
}

#[test]
fn the_page_of_probes() {
    let site = Site::new();
    let page = page(&site, &["--probe", "base"]);
    let Some(text) = fits(&page) else { skip!("no chromium here") };
    assert!(text.contains("network.tcp") && text.contains("denied EPERM"), "{text}");
    pictures(&page, "probes");
}

#[test]
fn the_page_of_mutations() {
    let site = Site::new();
    let page = page(&site, &["--mutate", "base"]);
    let Some(text) = fits(&page) else { skip!("no chromium here") };
    assert!(text.contains("seccomp.profile") && text.contains(" → ") && text.contains('●'), "{text}");
    pictures(&page, "mutations");
}
