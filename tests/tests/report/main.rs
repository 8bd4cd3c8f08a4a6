//! The report of a run in a browser: Debian's chromium, headless.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

#[path = "../../../grader/tests/report/sample.rs"]
mod sample;

use std::fs;
use std::path::Path;

use airlock_grader::report::render;
use airlock_tests::browser::{Scheme, browser, measure, open, save};
use airlock_tests::skip;
use sample::{HOSTILE, Run};
use serde_json::Value;

fn check(run: &Run, scheme: Scheme) -> Option<Vec<Value>> {
    let (messages, measured) = measure(browser()?, &render(&run.input()), scheme);
    assert_eq!(messages, [""; 0]);
    assert_eq!(measured.len(), 3);
    for (found, width) in measured.iter().zip([320, 360, 1440]) {
        assert_eq!([&found["width"], &found["closed"], &found["open"]], [width; 3], "it scrolls sideways");
        for nothing in ["collisions", "outside"] {
            assert_eq!(found[nothing], Value::Array(Vec::new()), "{nothing} at {width}");
        }
        assert_eq!([&found["scripts"], &found["images"]], [0; 2]);
        assert_eq!([&found["captions"], &found["scrolling"], &found["shaded"]], [&found["tables"]; 3]);
        assert_eq!(found["titles"], found["pictures"]);
        assert_eq!(found["dark"], matches!(scheme, Scheme::Dark));
    }
    Some(measured)
}

#[test]
fn it_fits_narrow_and_wide_in_light_and_dark() {
    let run = sample::soup();
    let Some(light) = check(&run, Scheme::Light) else { skip!("no chromium here") };
    let dark = check(&run, Scheme::Dark).unwrap();
    assert_eq!(light[0]["ground"], "rgb(253, 253, 251)");
    assert_eq!(dark[0]["ground"], "rgb(22, 24, 27)");
    assert_eq!(light[0]["pictures"], 2);
    assert!(light[0]["text"].as_str().unwrap().contains("submitted after 6 min 52 s of 10 min"));
}

#[test]
fn a_run_of_which_little_is_known_fits_too() {
    for run in [Run::new(1, 1), sample::without_candidate("no idea"), sample::large(2000, 8)] {
        if check(&run, Scheme::Light).is_none() {
            skip!("no chromium here");
        }
    }
}

#[test]
fn hostile_text_is_shown_and_does_nothing() {
    let Some(measured) = check(&sample::hostile(), Scheme::Light) else { skip!("no chromium here") };
    for found in measured {
        let text = found["text"].as_str().unwrap();
        for hostile in HOSTILE {
            let shown = hostile.replace('\u{202e}', "\\u{202e}").replace('\u{2066}', "\\u{2066}");
            assert!(text.contains(&shown), "{shown}");
        }
        assert!(found["title"].as_str().unwrap().starts_with("<script>"), "{}", found["title"]);
    }
}

/// The tests above would see a page that ran or loaded something, or that is too wide.
#[test]
fn a_worse_page_is_seen() {
    let page = render(&sample::soup().input());
    let Some(browser) = browser() else { skip!("no chromium here") };
    let wide = "<div style=\"width:2000px\"><img src=\"x.png\"></div><script>document.title='owned'</script>";
    let (messages, measured) =
        measure(browser, &page.replacen("<main>", &format!("<main>{wide}"), 1), Scheme::Light);
    // Scripts and images in three frames.
    assert!(messages.len() >= 6 && messages[0].contains("Content Security Policy"), "{messages:?}");
    assert!(measured.iter().all(|found| found["open"].as_u64() >= Some(2000) && found["scripts"] == 1));
    assert!(measured.iter().all(|found| found["title"] != "owned"), "the policy holds");
}

/// Pictures for people, in the build directory.
#[test]
fn screenshots_are_taken() {
    for (what, run, width, height) in [
        ("run", sample::soup(), 360, 6000),
        ("run", sample::soup(), 1440, 4200),
        ("hostile", sample::hostile(), 360, 8000),
    ] {
        let page = render(&run.input());
        let [light, dark] = [("light", Scheme::Light), ("dark", Scheme::Dark)].map(|(name, scheme)| {
            let browser = browser()?;
            let dir = save(&page);
            let file =
                Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("report-{what}-{width}-{name}.png"));
            let options =
                [format!("--screenshot={}", file.display()), format!("--window-size={width},{height}")];
            open(browser, &dir, "page.html", scheme, &options.each_ref().map(String::as_str));
            fs::read(file).ok()
        });
        let Some(light) = light else { skip!("no chromium here") };
        // Width and height of a PNG (its specification, section 11.2.1).
        let size = [16, 20].map(|at| u32::from_be_bytes(light[at..at + 4].try_into().unwrap()));
        assert_eq!(size, [width, height]);
        assert_ne!(Some(light), dark);
    }
}
